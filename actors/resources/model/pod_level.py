"""Pods with resources at the level of the pod, and their containers with some of them alone (KEP-2837, KEP-5526)."""

from __future__ import annotations

from proto.v1 import Container, Pod
from proto.v1.scalars.quantity import parse


class EmptyPoolError(Exception):
    """A pod with a budget of its own leaves nothing for its containers without an exclusive part."""


def has_own_resources(pod: Pod) -> bool:
    """True for a pod with requests or limits at the level of the pod."""
    own = pod.spec.resources
    return own is not None and bool(own.requests or own.limits)


def limits_equal_requests(container: Container) -> bool:
    """True for a container whose limits of CPU and memory are its requests. Raises QuantityError."""
    requests, limits = container.resources.requests, container.resources.limits
    return all(
        name in limits and 0 < parse(limits[name]) == parse(requests.get(name, limits[name]))
        for name in ("cpu", "memory")
    )
