"""Bytes of memory and huge pages that a container or a pod requests. Pure."""

from __future__ import annotations

from actors._cgroup.quantities.qos import qos_class
from actors._host.restart import is_sidecar
from actors.resources.memory.reserved import is_memory
from proto.v1 import Container, Pod
from proto.v1.scalars.quantity import QuantityError, value

Requests = dict[str, int]
"""Bytes by resource."""


def is_pinned(pod: Pod) -> bool:
    """True for a pod that the policy Static serves: Guaranteed, and without resources at the level of the pod.

    Kubernetes 1.36 serves those with the alpha gate PodLevelResourceManagers alone.
    """
    own = pod.spec.resources
    if own is not None and (own.requests or own.limits):
        return False
    try:
        return qos_class(pod) == "Guaranteed"
    except QuantityError:
        return False


def of_container(container: Container) -> Requests:
    """The container's requests. Raises QuantityError."""
    return {
        resource: value(quantity)
        for resource, quantity in sorted(container.resources.requests.items())
        if is_memory(resource)
    }


def of_pod(pod: Pod) -> Requests:
    """The pod's requests at their peak, of the resources of its app containers (KEP-753). Raises QuantityError."""
    peak: Requests = {}
    sidecars: Requests = {}
    for container in pod.spec.init_containers:
        for resource, size in of_container(container).items():
            if is_sidecar(container):
                sidecars[resource] = sidecars.get(resource, 0) + size
            else:
                peak[resource] = max(peak.get(resource, 0), sidecars.get(resource, 0) + size)
    total: Requests = {}
    for container in pod.spec.containers:
        for resource, size in of_container(container).items():
            total[resource] = total.get(resource, 0) + size
    return {r: max(size + sidecars.get(r, 0), peak.get(r, 0)) for r, size in sorted(total.items())}
