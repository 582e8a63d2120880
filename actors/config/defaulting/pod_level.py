"""Completes a pod's own resources, spec.resources (KEP-2837), from those of its containers.

`defaults.py` sets the containers' defaults before. Kubernetes 1.36 takes no pod-level limits of cpu and memory from
containers. Later releases do (pull request 140514). A kubelet's UID of a static pod is a hash of its defaulted fields.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from actors._cgroup.quantities.totals import is_pod_level
from proto.v1 import Container, PodSpec, Quantity, ResourceList, ResourceRequirements
from proto.v1.scalars.quantity import QuantityError, parse


def default_pod_resources(spec: PodSpec) -> PodSpec:
    """Return the spec with pod-level requests and limits completed; without spec.resources it stays as it is."""
    resources = spec.resources
    if resources is None:
        return spec
    try:
        limits = _huge_page_limits(resources, spec)
        requests = _requests(replace(resources, limits=limits), spec)
    except QuantityError:
        return spec  # validation reports an unreadable quantity with its field
    return replace(spec, resources=replace(resources, limits=limits, requests=requests))


def _huge_page_limits(resources: ResourceRequirements, spec: PodSpec) -> ResourceList:
    if not resources.requests and not resources.limits:
        return resources.limits
    total = _aggregate(spec, lambda container: container.resources.limits)
    huge = {name: amount for name, amount in total.items() if name.startswith("hugepages-")}
    return {name: amount for name, amount in huge.items() if name not in resources.requests} | resources.limits


def _requests(resources: ResourceRequirements, spec: PodSpec) -> ResourceList:
    if not resources.limits:
        return resources.requests
    total = _aggregate(spec, lambda container: container.resources.requests)
    from_containers = {name: amount for name, amount in total.items() if name in ("cpu", "memory")}
    return {**_supported(resources.limits), **from_containers, **resources.requests}


def _supported(resources: ResourceList) -> ResourceList:
    return {name: amount for name, amount in resources.items() if is_pod_level(name)}


def _aggregate(spec: PodSpec, pick: Callable[[Container], ResourceList]) -> ResourceList:
    """Return the pod's peak: sidecars and containers together, or the largest init container, per resource."""
    running = _sum(map(pick, spec.containers))
    before: ResourceList = {}
    peak: ResourceList = {}
    for container in spec.init_containers:
        own = pick(container)
        if container.restart_policy == "Always":
            before = own = _sum((before, own))
        else:
            own = _sum((before, own))
        peak = _largest(peak, own)
    return _largest(_sum((running, before)), peak)


def _sum(lists: Iterable[ResourceList]) -> ResourceList:
    total: ResourceList = {}
    for resources in lists:
        for name, amount in resources.items():
            total[name] = _added(total[name], amount) if name in total else amount
    return total


def _largest(left: ResourceList, right: ResourceList) -> ResourceList:
    names = {**left, **right}
    return {n: max((side[n] for side in (left, right) if n in side), key=parse) for n in names}


def _added(left: Quantity, right: Quantity) -> Quantity:
    # Sums are exact in nanos; whole and milli amounts are written in their usual form.
    nanos = parse(left) + parse(right)
    if nanos % 10**9 == 0:
        return str(nanos // 10**9)
    return f"{nanos // 10**6}m" if nanos % 10**6 == 0 else f"{nanos}n"
