"""Requests and limits of a pod as a whole: containers summed, or the largest init container. Pure.

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
    """What the pod is sure to get, by resource; with spec.overhead unless told otherwise. Raises QuantityError."""
    total = _of_containers(pod, lambda container: container.resources.requests)
    if pod.spec.resources is not None:
        total |= _parsed(pod.spec.resources.requests)
    if overhead:
        for name, nanos in _parsed(pod.spec.overhead).items():
            total[name] = total.get(name, 0) + nanos
    return _printed(total)


def limits(pod: Pod, *, overhead: bool = True) -> ResourceList:
    """What the pod may use at most, by resource, as far as its containers say. Raises QuantityError."""
    total = _of_containers(pod, lambda container: container.resources.limits)
    if pod.spec.resources is not None:
        total |= _parsed(pod.spec.resources.limits)
    if overhead:
        for name, nanos in _parsed(pod.spec.overhead).items():
            if total.get(name):  # overhead limits nothing that was not limited
                total[name] += nanos
    return _printed(total)


def all_limited(pod: Pod, resource: str) -> bool:
    """Whether every container, or the pod itself, has a limit of `resource`: only then does the pod have one."""
    if pod.spec.resources is not None and parse(pod.spec.resources.limits.get(resource, 0)):
        return True
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return all(parse(container.resources.limits.get(resource, 0)) for container in containers)


def spare_memory_per_container(pod: Pod) -> int:
    """Bytes of the pod's own memory request beyond its containers', shared equally among them; 0 without one."""
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


def _add(total: Nanos, more: Nanos) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def _parsed(resources: ResourceList) -> Nanos:
    return {name: parse(quantity) for name, quantity in resources.items()}


def _printed(total: Nanos) -> ResourceList:
    return {name: str(nanos // NANOS) if nanos % NANOS == 0 else f"{nanos}n" for name, nanos in total.items()}
