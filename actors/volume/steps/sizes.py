"""How large a memory-backed emptyDir may be.

Pure. Covers the pod's memory limit as far as that calculation needs it. Source:
calculateEmptyDirMemorySize of pkg/volume/emptydir and PodLimits of k8s.io/component-helpers/resource.
"""

from collections.abc import Iterable

from proto.v1 import Container, Pod
from proto.v1.scalars.base import Quantity
from proto.v1.scalars.quantity import value


def tmpfs_size(pod: Pod, size_limit: Quantity | None, allocatable_bytes: int) -> int:
    """The `size` option in bytes: the least of allocatable memory, the pod's memory limit and the sizeLimit."""
    size = allocatable_bytes
    for limit in (pod_memory_limit(pod), value(size_limit) if size_limit is not None else 0):
        if 0 < limit <= size:
            size = limit
    return size


def pod_memory_limit(pod: Pod) -> int:
    """The pod's memory limit in bytes; 0 when any container has none.

    Containers and sidecars add up; an init container counts together with the sidecars that started before it.
    """
    spec = pod.spec
    if spec.resources is not None and "memory" in spec.resources.limits:
        return value(spec.resources.limits["memory"])
    if not all(_limit(container) for container in (*spec.init_containers, *spec.containers)):
        return 0
    sidecars = peak = 0
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars += _limit(container)
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + _limit(container))
    total = max(peak, sidecars + _sum(spec.containers))
    overhead = spec.overhead.get("memory") if spec.overhead else None
    return total + (value(overhead) if overhead is not None else 0)


def huge_page_size(pod: Pod, medium: str) -> str:
    """The `pagesize` option for the medium HugePages or HugePages-SIZE; raises ValueError with the kubelet's words."""
    wanted = medium.removeprefix("HugePages").removeprefix("-")
    sizes: dict[int, str] = {}
    of_pod = pod.spec.resources.requests if pod.spec.resources is not None else {}
    of_containers = (one.resources.requests for one in (*pod.spec.containers, *pod.spec.init_containers))
    for requests in (of_pod, *of_containers):
        for name in requests:
            if name.startswith("hugepages-"):
                size = name.removeprefix("hugepages-")
                sizes[value(size)] = size
    if wanted:
        found = sizes.get(value(wanted))
    elif len(sizes) > 1:
        raise ValueError(f"medium: {medium} can't be used if container requests multiple huge page sizes")
    else:
        found = next(iter(sizes.values()), None)
    if found is None:
        raise ValueError(
            f"medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    return found


def _limit(container: Container) -> int:
    limit = container.resources.limits.get("memory")
    return value(limit) if limit is not None else 0


def _sum(containers: Iterable[Container]) -> int:
    return sum(map(_limit, containers))
