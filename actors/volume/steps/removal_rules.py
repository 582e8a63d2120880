"""The rule for removing a volume's directory. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from actors.volume.steps.errors import VolumeError, tear_down_message
from actors.volume.steps.places import CONFIG_MAP, DOWNWARD_API, EMPTY_DIR, PROJECTED, SECRET

LOCAL_PLUGINS = frozenset({EMPTY_DIR, CONFIG_MAP, SECRET, DOWNWARD_API, PROJECTED})
"""Plugins whose volumes live and die with the pod. Their content is deleted, also when another agent set them up."""

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "hugetlbfs"})


class VolumeDir(NamedTuple):
    """A volume's directory on disk. `fs_type` of the file system mounted on it; empty without a mount."""

    plugin: str
    name: str
    fs_type: str = ""


RemovalStep = Literal["unmount", "delete", "rmdir"]


def removal_steps(directory: VolumeDir) -> tuple[RemovalStep, ...]:
    """The steps that remove one volume's directory. Raises VolumeError with the reason when it must stay.

    Only file systems in memory are unmounted, and only under plugins whose content is the pod's own. Anything else may
    be data that outlives the pod: such a directory is removed when it is empty, as the kubelet's orphan clean-up does.
    """
    local = directory.plugin in LOCAL_PLUGINS
    if not directory.fs_type:
        return ("delete",) if local else ("rmdir",)
    if local and directory.fs_type in MEMORY_FILE_SYSTEMS:
        return ("unmount", "delete")
    text = f"its directory is a mount point ({directory.fs_type}) that is not ours: unmount it"
    raise VolumeError(tear_down_message(directory.name, text))
