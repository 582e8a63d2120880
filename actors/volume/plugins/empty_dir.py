"""emptyDir: a directory that lives as long as the pod, on disk or in memory. Source: pkg/volume/emptydir."""

from __future__ import annotations

from actors._cgroup.quantities import totals
from actors.volume.plugins.base import CannotMount, Context, Plugin, fs_group
from actors.volume.steps.places import EMPTY_DIR
from actors.volume.steps.volumes import EmptyDir
from proto.v1 import Pod, Volume
from proto.v1.scalars.base import Quantity
from proto.v1.scalars.quantity import value


class EmptyDirPlugin(Plugin):
    """emptyDir, also for a volume without any source."""

    source = "empty_dir"
    directory = EMPTY_DIR

    def step(self, pod: Pod, volume: Volume, context: Context) -> EmptyDir:
        """See Plugin."""
        source = volume.empty_dir
        medium = (source.medium if source is not None else None) or ""
        limit = source.size_limit if source is not None else None
        return directory(pod, volume.name, self.directory, context, medium, limit)


def directory(
    pod: Pod, name: str, plugin: str, context: Context, medium: str = "", limit: Quantity | None = None
) -> EmptyDir:
    """The step for an emptyDir, also for the directory of another plugin's files. Raises CannotMount."""
    uid, group = pod.metadata.uid, fs_group(pod)
    if medium == "":
        return EmptyDir(uid, plugin, name, fs_group=group)
    if medium == "Memory":
        size = tmpfs_size(pod, limit, context.allocatable_bytes)
        return EmptyDir(uid, plugin, name, "tmpfs", f"size={size}", group)
    if medium == "HugePages" or medium.startswith("HugePages-"):
        try:
            return EmptyDir(uid, plugin, name, "hugetlbfs", f"pagesize={huge_page_size(pod, medium)}", group)
        except ValueError as error:
            raise CannotMount(str(error), retry=False) from None
    raise CannotMount(f'unknown storage medium "{medium}"', retry=False)


def tmpfs_size(pod: Pod, size_limit: Quantity | None, allocatable_bytes: int) -> int:
    """The `size` option in bytes: the least of allocatable memory, the pod's memory limit and the sizeLimit.

    Source: calculateEmptyDirMemorySize of pkg/volume/emptydir, PodLimits of k8s.io/component-helpers/resource.
    """
    size = allocatable_bytes
    for limit in (pod_memory_limit(pod), value(size_limit) if size_limit is not None else 0):
        if 0 < limit <= size:
            size = limit
    return size


def pod_memory_limit(pod: Pod) -> int:
    """The pod's memory limit in bytes, with spec.overhead, as its cgroup has it; 0 when it is not limited."""
    return value(totals.limits(pod).get("memory", 0)) if totals.all_limited(pod, "memory") else 0


def huge_page_size(pod: Pod, medium: str) -> str:
    """The `pagesize` option for the medium HugePages or HugePages-SIZE. Raises ValueError (the kubelet's text)."""
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
