"""Sums the requests and limits of a pod: its containers together, or its largest init container. Pure.

Source: https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers, KEP-753
(sidecars), KEP-2837 (pod-level resources) and KEP-688 (overhead).
"""

from __future__ import annotations

from collections.abc import Callable

from proto.v1 import Container, Pod
from proto.v1.scalars.base import ResourceList
from proto.v1.scalars.quantity import NANOS, parse, value

Nanos = dict[str, int]
Pick = Callable[[Container], ResourceList]


def requests(pod: Pod, *, overhead: bool = True) -> ResourceList:
    """Return the pod's requests by resource, with spec.overhead unless told otherwise. Raises QuantityError."""
    total = _of_containers(pod, lambda container: container.resources.requests)
    if pod.spec.resources is not None:
        total |= _of_pod(pod.spec.resources.requests)
    if overhead:
        _add(total, _parsed(pod.spec.overhead))
    return _printed(total)


def limits(pod: Pod, *, overhead: bool = True) -> ResourceList:
    """Return the pod's limits by resource, of the containers that have some. Raises QuantityError."""
    total = _of_containers(pod, lambda container: container.resources.limits)
    if pod.spec.resources is not None:
        total |= _of_pod(pod.spec.resources.limits)
    if overhead:
        for name, nanos in _parsed(pod.spec.overhead).items():
            if total.get(name):  # overhead adds to a limit and creates none
                total[name] += nanos
    return _printed(total)


def of_containers(pod: Pod, pick: Pick) -> ResourceList:
    """Return the sum of the containers' amounts, without the pod's own and overhead. Raises QuantityError."""
    return _printed(_of_containers(pod, pick))


def is_pod_level(name: str) -> bool:
    """Return True for a resource that a pod itself may have. Others are of containers only."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def all_limited(pod: Pod, resource: str) -> bool:
    """Return True when the pod itself or every container limits `resource`: only then is the pod limited."""
    if pod.spec.resources is not None and parse(pod.spec.resources.limits.get(resource, 0)):
        return True
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return all(parse(container.resources.limits.get(resource, 0)) for container in containers)


def spare_memory_per_container(pod: Pod) -> int:
    """Return each container's equal share, in bytes, of the memory that the pod requests beyond its containers."""
    own = pod.spec.resources.requests.get("memory", 0) if pod.spec.resources is not None else 0
    if not parse(own):
        return 0
    claimed = _of_containers(pod, lambda container: container.resources.requests).get("memory", 0)
    return (value(own) - -(-claimed // NANOS)) // (len(pod.spec.containers) + len(pod.spec.init_containers))


def _of_containers(pod: Pod, pick: Pick) -> Nanos:
    total: Nanos = {}
    for container in pod.spec.containers:
        _add(total, _parsed(pick(container)))
    sidecars: Nanos = {}
    peak: Nanos = {}
    for container in pod.spec.init_containers:
        own = _parsed(pick(container))
        if container.restart_policy == "Always":
            _add(total, own)
            _add(sidecars, own)
            running = sidecars
        else:
            running = dict(sidecars)
            _add(running, own)
        for name, nanos in running.items():
            peak[name] = max(peak.get(name, 0), nanos)
    return {name: max(total.get(name, 0), peak.get(name, 0)) for name in total | peak}


def _of_pod(resources: ResourceList) -> Nanos:
    # Kubernetes ignores other names here, so that the containers' amounts count.
    return {name: nanos for name, nanos in _parsed(resources).items() if is_pod_level(name)}


def _add(total: Nanos, more: Nanos) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def _parsed(resources: ResourceList) -> Nanos:
    return {name: parse(quantity) for name, quantity in resources.items()}


def _printed(total: Nanos) -> ResourceList:
    return {name: str(nanos // NANOS) if nanos % NANOS == 0 else f"{nanos}n" for name, nanos in total.items()}
