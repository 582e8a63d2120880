"""Computes a pod's quality-of-service class from its requests and limits. Pure.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/ and ComputePodQOS of pkg/apis/core/v1/helper/qos.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from proto.v1 import Pod
from proto.v1.scalars.base import ResourceList
from proto.v1.scalars.quantity import parse

QosClass = Literal["Guaranteed", "Burstable", "BestEffort"]

_COUNTED = ("cpu", "memory")
"""Other resources do not count: a pod with only those is BestEffort."""


def qos_class(pod: Pod) -> QosClass:
    """Return the class in the pod's status, else compute it. A running pod never changes class.

    Expects requests defaulted from limits, as by the API server and our manifest reader. Raises QuantityError.
    """
    if pod.status.qos_class in ("Guaranteed", "Burstable", "BestEffort"):
        return pod.status.qos_class  # type: ignore[return-value]  # compared with each member above
    return compute_qos_class(pod)


def compute_qos_class(pod: Pod) -> QosClass:
    """Return the class of `pod` by its spec alone. Raises QuantityError."""
    if pod.spec.resources is not None:
        owners = [pod.spec.resources]
        all_limited = not pod.spec.resources.limits or _limits_all(pod.spec.resources.limits)
    else:
        owners = [container.resources for container in (*pod.spec.containers, *pod.spec.init_containers)]
        all_limited = all(_limits_all(owner.limits) for owner in owners)
    requests = _sum(owner.requests for owner in owners)
    limits = _sum(owner.limits for owner in owners)
    if not requests and not limits:
        return "BestEffort"
    if all_limited and requests == limits:
        return "Guaranteed"
    return "Burstable"


def _limits_all(limits: ResourceList) -> bool:
    return all(parse(limits.get(name, 0)) > 0 for name in _COUNTED)


def _sum(lists: Iterable[ResourceList]) -> dict[str, int]:
    """Return nanos by resource, without zero sums."""
    total: dict[str, int] = {}
    for resources in lists:
        for name in _COUNTED:
            nanos = parse(resources[name]) if name in resources else 0
            if nanos > 0:
                total[name] = total.get(name, 0) + nanos
    return total
