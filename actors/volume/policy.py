"""What a pod needs mounted, what of that is missing, and what may be removed when it goes.

Pure: desired and actual state in, operations out. Covers emptyDir and hostPath; every other source is named as not
supported yet. Sizes are in `sizes.py`, the system calls in `setup.py` and `removal.py`.
Source: pkg/kubelet/volumemanager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from actors.volume import sizes
from proto.v1 import Pod, Volume
from proto.v1.base import json_name
from proto.v1.volume import VOLUME_SOURCES

EMPTY_DIR = "kubernetes.io~empty-dir"
LOCAL_PLUGINS = frozenset(
    {
        EMPTY_DIR,
        "kubernetes.io~secret",
        "kubernetes.io~configmap",
        "kubernetes.io~projected",
        "kubernetes.io~downward-api",
    }
)
"""Plugins whose volumes live and die with the pod: they are removed with what is in them, whoever set them up."""

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "hugetlbfs"})
Medium = Literal["", "tmpfs", "hugetlbfs"]


@dataclass(frozen=True, slots=True)
class EmptyDir:
    """An emptyDir to be there. `medium` is the file system mounted on it, empty for the root directory's own."""

    name: str
    medium: Medium = ""
    options: str = ""
    fs_group: int | None = None


@dataclass(frozen=True, slots=True)
class HostPath:
    """A path of the node to be there and of that type; empty is not checked."""

    name: str
    path: str
    type: str = ""


Wanted: TypeAlias = EmptyDir | HostPath


class CannotMount(Exception):
    """The pod's volumes cannot be set up as they are specified; the message is the pod's FailedMount."""


def wanted_volumes(pod: Pod, allocatable_bytes: int) -> tuple[Wanted, ...]:
    """The volumes the pod's containers use, in its spec's order. Raises CannotMount for the first that cannot be."""
    used = used_names(pod)
    if not used:
        return ()
    volumes = [volume for volume in pod.spec.volumes if volume.name in used]
    missing = used.difference(volume.name for volume in volumes)
    if missing:
        raise CannotMount(unmounted_message(missing, missing, "no such volume in the pod"))
    return tuple(_wanted(pod, volume, allocatable_bytes) for volume in volumes)


def used_names(pod: Pod) -> frozenset[str]:
    """Names of the volumes that any container mounts or uses as a device; the others are not set up."""
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    mounts = {mount.name for container in containers for mount in container.volume_mounts}
    return frozenset(mounts | {device.name for container in containers for device in container.volume_devices})


def _wanted(pod: Pod, volume: Volume, allocatable_bytes: int) -> Wanted:
    check_component(volume.name)
    if volume.host_path is not None:
        return HostPath(volume.name, volume.host_path.path, volume.host_path.type or "")
    source = next((source for source in VOLUME_SOURCES if getattr(volume, source) is not None), "empty_dir")
    if source != "empty_dir":
        raise CannotMount(
            set_up_message(
                volume.name,
                f"this agent does not support volumes of type `{json_name(source)}` yet: use emptyDir or hostPath",
            )
        )
    return _empty_dir(pod, volume, allocatable_bytes)


def _empty_dir(pod: Pod, volume: Volume, allocatable_bytes: int) -> EmptyDir:
    security = pod.spec.security_context
    fs_group = security.fs_group if security is not None else None
    medium = (volume.empty_dir.medium if volume.empty_dir is not None else None) or ""
    if medium == "":
        return EmptyDir(volume.name, fs_group=fs_group)
    if medium == "Memory":
        limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
        size = sizes.tmpfs_size(pod, limit, allocatable_bytes)
        return EmptyDir(volume.name, "tmpfs", f"size={size}", fs_group)
    if medium == "HugePages" or medium.startswith("HugePages-"):
        try:
            return EmptyDir(volume.name, "hugetlbfs", f"pagesize={sizes.huge_page_size(pod, medium)}", fs_group)
        except ValueError as error:
            raise CannotMount(set_up_message(volume.name, str(error))) from None
    raise CannotMount(set_up_message(volume.name, f'unknown storage medium "{medium}"'))


def missing_volumes(wanted: Iterable[Wanted], actual: Mapping[str, Wanted]) -> tuple[Wanted, ...]:
    """What has to be set up: the volumes that are not there as wanted.

    What a rebuild found on disk is there however it was specified then: a pod's volumes do not change in its life.
    """
    return tuple(volume for volume in wanted if volume.name not in actual)


def check_component(name: str) -> str:
    """`name` if it is one component of a path; raises CannotMount for one that would lead elsewhere."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise CannotMount(f"invalid name {name!r}: it must be one component of a path")
    return name


@dataclass(frozen=True, slots=True)
class Found:
    """A volume's directory on disk. `fs_type` of what is mounted on it; empty when nothing is."""

    plugin: str
    name: str
    fs_type: str = ""


RemovalStep = Literal["unmount", "delete", "rmdir"]


def removal_steps(found: Found) -> tuple[RemovalStep, ...]:
    """How to get rid of one volume's directory; raises CannotMount with the reason when it must be left alone.

    Only file systems in memory are unmounted, and only under plugins whose content is the pod's own. Anything else may
    be data that outlives the pod: such a directory is removed when it is empty, as the kubelet's orphan clean-up does.
    """
    local = found.plugin in LOCAL_PLUGINS
    if not found.fs_type:
        return ("delete",) if local else ("rmdir",)
    if local and found.fs_type in MEMORY_FILE_SYSTEMS:
        return ("unmount", "delete")
    raise CannotMount(
        tear_down_message(found.name, f"its directory is a mount point ({found.fs_type}) that is not ours: unmount it")
    )


def set_up_message(name: str, error: str) -> str:
    """The kubelet's FailedMount message for one volume."""
    return f'MountVolume.SetUp failed for volume "{name}" : {error}'


def tear_down_message(name: str, error: str) -> str:
    """The kubelet's FailedUnMount message for one volume."""
    return f'UnmountVolume.TearDown failed for volume "{name}" : {error}'


def unmounted_message(unmounted: Iterable[str], not_processed: Iterable[str], error: str) -> str:
    """The kubelet's message for a pod whose volumes did not get ready in time."""
    return (
        f"unmounted volumes=[{' '.join(sorted(unmounted))}], unattached volumes=[], "
        f"failed to process volumes=[{' '.join(sorted(not_processed))}]: {error}"
    )
