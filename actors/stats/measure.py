"""Reads the node's figures from the kernel and from the runtime's answers. Functions that touch a disk may block."""

from __future__ import annotations

import functools
import os
import stat
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from actors._cgroup import fs
from actors._cgroup.figures import Figures
from actors._host.files import paths
from actors._host.files.disk_use import DiskUse, Walk, lower_cpu_priority
from actors._host.machine import memory_capacity, memory_used
from actors.stats.policy import POD_FILES, CgroupFigures, ContainerFigures
from proto.agent.settings import Settings
from proto.common.machine import mountinfo
from proto.cri import api_pb2 as pb
from proto.cri.labels import CONTAINER_NAME, POD_UID
from proto.node.stats import FsStats

NO_FS = FsStats(path="", device=0, capacity_bytes=0, available_bytes=0, inodes=0, inodes_free=0)
"""A file system whose path is unknown. It has no capacity; readers take that as not observed."""


def file_system(path: str) -> FsStats:
    """The file system of `path`. Raises OSError; hangs when the file system hangs."""
    figures = os.statvfs(path)
    return FsStats(
        path=path,
        device=_device(path),
        capacity_bytes=figures.f_blocks * figures.f_frsize,
        available_bytes=figures.f_bavail * figures.f_frsize,
        inodes=figures.f_files,
        inodes_free=figures.f_ffree,
        used_bytes=(figures.f_blocks - figures.f_bfree) * figures.f_frsize,
    )


def _device(path: str) -> int:
    """The number of the disk below `path`. Raises OSError.

    The subvolumes of a btrfs have numbers of their own in st_dev, without a driver (major 0). Its disk is the source of
    the mount, which cAdvisor takes, too.
    """
    device = os.stat(path).st_dev
    if os.major(device):
        return device
    try:
        source = os.stat(btrfs_source(mountinfo.read(), _mount_id(path)))
    except OSError:  # no btrfs, or its source is not there: a first mount without an initramfs is of /dev/root
        return device
    return source.st_rdev if stat.S_ISBLK(source.st_mode) else device


def _mount_id(path: str) -> int:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    finally:
        os.close(descriptor)
    return next(int(value) for name, _, value in (line.partition(":") for line in lines) if name == "mnt_id")


def btrfs_source(table: bytes, mount_id: int) -> str:
    """The source of a btrfs below /dev, given a mount table; empty when the mount is something else. Pure.

    A FUSE file system chooses its source itself, and could name one whose lookup hangs.
    """
    start = b"%d " % mount_id
    line = next((line for line in table.split(b"\n") if line.startswith(start)), b"")
    fs_type, _, rest = line.partition(b" - ")[2].partition(b" ")
    source = os.fsdecode(rest.partition(b" ")[0])
    return source if fs_type == b"btrfs" and source.startswith("/dev/") and ".." not in source else ""


def nearest_file_system(path: str) -> FsStats:
    """The file system of `path` or, while it does not exist, of its nearest existing parent. Raises OSError."""
    while True:
        try:
            return file_system(path)
        except FileNotFoundError:
            if path in ("/", ""):
                raise
            path = os.path.dirname(path)


def two_file_systems(root: str, images: str) -> tuple[FsStats, FsStats]:
    """Read the file systems of `root`, as `nearest_file_system` does, and of `images`. Raises OSError."""
    return nearest_file_system(root), file_system(images)


def memory() -> tuple[int, int]:
    """(capacity, working set) of the machine in bytes."""
    usage = fs.usage("/")
    return memory_capacity(), memory_used() if usage is None else usage.memory_working_set_bytes


def processes() -> tuple[int, int]:
    """(limit, count) of the kernel's tasks, which are processes and threads."""
    most = min(int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max"))
    return most, int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def mount_point(file_systems: Iterable[pb.FilesystemUsage]) -> str:
    """The mount point of the first of these file systems of rpc ImageFsInfo; empty when there is none."""
    return next((str(one.fs_id.mountpoint) for one in file_systems if one.fs_id.mountpoint), "")


def image_use(answer: pb.ImageFsInfoResponse) -> tuple[DiskUse, DiskUse | None]:
    """(images, containers): disk use; None for containers when the runtime does not separate the two."""
    images = _sum(answer.image_filesystems) or DiskUse()
    return images, _sum(answer.container_filesystems)


def _sum(usages: Iterable[pb.FilesystemUsage]) -> DiskUse | None:
    found = [DiskUse(usage.used_bytes.value, usage.inodes_used.value) for usage in usages]
    return functools.reduce(DiskUse.plus, found) if found else None


def pod_cgroups(settings: Settings) -> dict[str, CgroupFigures]:
    """Figures of every pod that has a cgroup, by UID."""
    found = {}
    for uid, name in fs.list_pod_cgroups(settings).items():
        usage = fs.usage(name)
        if usage is not None:  # removed since the list was made
            found[uid] = CgroupFigures(usage.memory_working_set_bytes, usage.cpu_ns, usage.pids)
    return found


def containers(stats: Iterable[pb.ContainerStats], running: Collection[str]) -> list[ContainerFigures]:
    """Figures of the pods' containers from rpc ListContainerStats; other containers of the runtime are left out.

    `running`: IDs of running containers. containerd also reports ended ones, whose writable layers it keeps. As in the
    kubelet, these do not count: a container that is restarted would have its old layer's use, too.
    """
    found = []
    for one in stats:
        labels = one.attributes.labels
        if (uid := labels.get(POD_UID)) and one.attributes.id in running:
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


def figures(stats: Iterable[pb.ContainerStats]) -> dict[str, Figures]:
    """Figures of containers by ID from rpc ListContainerStats; 0 for what is not in it.

    A record without CPU and memory is left out: containerd reports the writable layers of ended containers so.
    """
    found = {}
    for one in stats:
        if not (one.HasField("cpu") or one.HasField("memory")):
            continue
        memory, swap = one.memory, one.swap
        working_set, used_swap = memory.working_set_bytes.value, swap.swap_usage_bytes.value
        has_limit, has_swap_limit = memory.HasField("available_bytes"), swap.HasField("swap_available_bytes")
        found[one.attributes.id] = Figures(
            time=(one.cpu.timestamp / 1e9) or time.time(),
            cpu_ns=one.cpu.usage_core_nano_seconds.value,
            memory_bytes=memory.usage_bytes.value,
            working_set_bytes=working_set,
            rss_bytes=memory.rss_bytes.value,
            page_faults=memory.page_faults.value,
            major_page_faults=memory.major_page_faults.value,
            memory_limit_bytes=working_set + memory.available_bytes.value if has_limit else 0,
            swap_bytes=used_swap,
            swap_max_bytes=used_swap + swap.swap_available_bytes.value if has_swap_limit else None,
        )
    return found


def pod_files(pod_logs_dir: str, root_dir: str, deadline: float) -> dict[str, dict[str, DiskUse]]:
    """Disk use of the logs by pod UID and container, from a walk at the lowest CPU priority.

    POD_FILES is the key of files directly in the directory of the pod's logs. It is also that of the hosts file and the
    termination messages, which the pod's containers write to. At `deadline`, monotonic, the walk ends with the count
    so far.
    """
    lower_cpu_priority()
    walk = Walk(deadline)
    found: dict[str, dict[str, DiskUse]] = {}
    for uid in _names(paths.pods_dir(root_dir)):  # before the logs: they are few
        hosts = walk.measure(paths.etc_hosts_path(root_dir, uid))
        own = hosts.plus(walk.measure(f"{paths.pod_dir(root_dir, uid)}/containers"))
        if own.inodes:
            found[uid] = {POD_FILES: own}
    for name in _names(pod_logs_dir):
        logs = found.setdefault(name.rpartition("_")[2], {})
        for key, use in _logs_of_pod(f"{pod_logs_dir}/{name}", walk).items():
            logs[key] = logs.get(key, DiskUse()).plus(use)
    return found


def _logs_of_pod(directory: str, walk: Walk) -> dict[str, DiskUse]:
    found: dict[str, DiskUse] = {}
    for name in _names(directory):
        key = name if _is_directory(f"{directory}/{name}") else POD_FILES
        found[key] = found.get(key, DiskUse()).plus(walk.measure(f"{directory}/{name}"))
    return found


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
