"""Reading the node's figures from the kernel and the runtime's answers. The functions that touch a disk may block."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from actors._cgroup import fs
from actors._host.files.disk_use import DiskUse
from actors._host.machine import memory_capacity, memory_used
from actors.stats.policy import CgroupFigures, ContainerFigures
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node.stats import FsStats

POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"

NO_FS = FsStats(path="", device=0, capacity_bytes=0, available_bytes=0, inodes=0, inodes_free=0)
"""A file system nobody could name yet: without capacity, which every reader takes for not observed."""


def file_system(path: str) -> FsStats:
    """The file system `path` is on. Raises OSError; may hang with it."""
    figures, device = os.statvfs(path), os.stat(path).st_dev
    return FsStats(
        path=path,
        device=device,
        capacity_bytes=figures.f_blocks * figures.f_frsize,
        available_bytes=figures.f_bavail * figures.f_frsize,
        inodes=figures.f_files,
        inodes_free=figures.f_ffree,
        used_bytes=(figures.f_blocks - figures.f_bfree) * figures.f_frsize,
    )


def nearest(path: str) -> FsStats:
    """As file_system, for a directory that may not have been made yet: then of the first above it that has."""
    while True:
        try:
            return file_system(path)
        except FileNotFoundError:
            if path in ("/", ""):
                raise
            path = os.path.dirname(path)


def memory() -> tuple[int, int]:
    """(capacity, working set) of the machine in bytes."""
    usage = fs.usage("/")
    return memory_capacity(), memory_used() if usage is None else usage.memory_working_set_bytes


def processes() -> tuple[int, int]:
    """(most there may be, how many there are), threads included, as the kernel limits them."""
    most = min(int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max"))
    return most, int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def image_mount_point(answer: pb.ImageFsInfoResponse) -> str:
    """Where the runtime keeps its images; empty when it does not say."""
    for usage in answer.image_filesystems:
        if usage.fs_id.mountpoint:
            return str(usage.fs_id.mountpoint)
    return ""


def image_use(answer: pb.ImageFsInfoResponse) -> tuple[DiskUse, DiskUse | None]:
    """What images take, and what containers take where the runtime tells it apart."""
    images = _sum(answer.image_filesystems) or DiskUse()
    return images, _sum(answer.container_filesystems)


def _sum(usages: Iterable[pb.FilesystemUsage]) -> DiskUse | None:
    found = [DiskUse(usage.used_bytes.value, usage.inodes_used.value) for usage in usages]
    return DiskUse(sum(one.bytes for one in found), sum(one.inodes for one in found)) if found else None


def pod_cgroups(settings: Settings) -> dict[str, CgroupFigures]:
    """Figures of every pod that has a cgroup, by UID."""
    found = {}
    for uid, name in fs.list_pod_cgroups(settings).items():
        usage = fs.usage(name)
        if usage is not None:  # else it has gone since the list
            found[uid] = CgroupFigures(usage.memory_working_set_bytes, usage.cpu_ns)
    return found


def containers(stats: Iterable[pb.ContainerStats]) -> list[ContainerFigures]:
    """Containers of pods, as ListContainerStats has them; others on the runtime are none of ours."""
    found = []
    for one in stats:
        labels = one.attributes.labels
        if uid := labels.get(POD_UID):
            layer = DiskUse(one.writable_layer.used_bytes.value, one.writable_layer.inodes_used.value)
            found.append(
                ContainerFigures(
                    pod_uid=uid,
                    name=labels.get(CONTAINER_NAME, one.attributes.metadata.name),
                    memory_working_set_bytes=one.memory.working_set_bytes.value,
                    cpu_ns=one.cpu.usage_core_nano_seconds.value,
                    writable_layer=layer,
                )
            )
    return found
