"""emptyDir: a directory that lives as long as the pod, on disk or in memory. Source: pkg/volume/emptydir."""

from __future__ import annotations

from actors.volume.ops.setup import EMPTY_DIR
from actors.volume.plugins import CannotMount, Context, Plugin, fs_group
from actors.volume.steps import sizes
from actors.volume.steps.codec import EmptyDir
from proto.v1 import Pod, Volume
from proto.v1.scalars.base import Quantity


class EmptyDirPlugin(Plugin):
    """A volume without any source is one too."""

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
    """The step for an emptyDir, also for one that another plugin keeps its files in. Raises CannotMount."""
    uid, group = pod.metadata.uid, fs_group(pod)
    if medium == "":
        return EmptyDir(uid, plugin, name, fs_group=group)
    if medium == "Memory":
        size = sizes.tmpfs_size(pod, limit, context.allocatable_bytes)
        return EmptyDir(uid, plugin, name, "tmpfs", f"size={size}", group)
    if medium == "HugePages" or medium.startswith("HugePages-"):
        try:
            return EmptyDir(uid, plugin, name, "hugetlbfs", f"pagesize={sizes.huge_page_size(pod, medium)}", group)
        except ValueError as error:
            raise CannotMount(str(error), retry=False) from None
    raise CannotMount(f'unknown storage medium "{medium}"', retry=False)
