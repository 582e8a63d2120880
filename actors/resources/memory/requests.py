"""Bytes of memory and huge pages that a container or a pod requests. Pure."""

from __future__ import annotations

from actors._cgroup.quantities.qos import qos_class
from actors._host.restart import is_sidecar
from actors.resources.memory.reserved import is_memory
from actors.resources.model.pod_level import has_own_resources, limits_equal_requests
from proto.v1 import Container, Pod, ResourceList
from proto.v1.scalars.quantity import QuantityError, value

Requests = dict[str, int]
"""Bytes by resource."""


def is_pinned(pod: Pod, *, pod_level: bool) -> bool:
    """True for a pod that the policy Static serves: Guaranteed.

    Those with resources at the level of the pod only with `pod_level`, the alpha gate PodLevelResourceManagers.
    """
    if has_own_resources(pod) and not pod_level:
        return False
    try:
        return qos_class(pod) == "Guaranteed"
    except QuantityError:
        return False


def of_container(pod: Pod, container: Container) -> Requests:
    """The requests of a container for memory of its own; none if it uses the pod's. Raises QuantityError."""
    if has_own_resources(pod) and not limits_equal_requests(container):
        return {}
    return _bytes(container.resources.requests)


def of_pod(pod: Pod) -> Requests:
    """The pod's own requests, or the peak of its containers' (KEP-753), of the resources of its app containers.

    Raises QuantityError.
    """
    if has_own_resources(pod):
        own = _bytes(pod.spec.resources.requests) if pod.spec.resources is not None else {}
        return {resource: size for resource, size in own.items() if size > 0}
    peak: Requests = {}
    sidecars: Requests = {}
    for container in pod.spec.init_containers:
        for resource, size in of_container(pod, container).items():
            if is_sidecar(container):
                sidecars[resource] = sidecars.get(resource, 0) + size
            else:
                peak[resource] = max(peak.get(resource, 0), sidecars.get(resource, 0) + size)
    total: Requests = {}
    for container in pod.spec.containers:
        for resource, size in of_container(pod, container).items():
            total[resource] = total.get(resource, 0) + size
    return {r: max(size + sidecars.get(r, 0), peak.get(r, 0)) for r, size in sorted(total.items())}


def _bytes(requests: ResourceList) -> Requests:
    return {resource: value(quantity) for resource, quantity in sorted(requests.items()) if is_memory(resource)}
