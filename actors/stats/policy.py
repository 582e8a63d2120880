"""Combines figures of cgroups, the runtime and the disk into statistics of the node and its pods. Pure.

Sources: pkg/kubelet/stats/cri_stats_provider.go, pkg/kubelet/stats/helper.go and pkg/kubelet/eviction/helpers.go of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from actors._host.files.disk_use import MOST_USE, DiskUse
from proto.node.stats import ContainerUsage, FsStats, PodUsage, VolumeUse
from proto.pods.volume import PodVolumeUsage

NO_USE = DiskUse()
POD_FILES = ""
"""Among a pod's logs: the files of no container, such as its hosts file and termination messages (CVE-2020-8557)."""


@dataclass(frozen=True, slots=True)
class FileSystems:
    """The node's file systems, and the disk use of images and containers."""

    nodefs: FsStats
    imagefs: FsStats
    containerfs: FsStats
    """The disk of writable layers; equal to imagefs when they are on it."""
    image_use: DiskUse
    container_use: DiskUse | None
    """None when the runtime does not separate it from `image_use`."""


@dataclass(frozen=True, slots=True)
class CgroupFigures:
    """Figures of a pod's cgroup."""

    memory_working_set_bytes: int
    cpu_ns: int
    tasks: int = 0
    """Processes and threads."""


@dataclass(frozen=True, slots=True)
class ContainerFigures:
    """The runtime's figures of one container."""

    pod_uid: str
    name: str
    memory_working_set_bytes: int = 0
    cpu_ns: int = 0
    writable_layer: DiskUse = NO_USE


@dataclass(frozen=True)
class PodDisk:
    """Disk use of a pod's logs and volumes."""

    logs: dict[str, DiskUse] = field(default_factory=dict)
    """By container."""
    volumes: DiskUse = NO_USE
    """Sum of those on the node's own disk."""
    by_volume: tuple[VolumeUse, ...] = ()


def pod_disks(logs: Mapping[str, dict[str, DiskUse]], volumes: Iterable[PodVolumeUsage]) -> dict[str, PodDisk]:
    """Disk use by pod UID, from `logs` by UID and container, and the volume actor's `volumes`."""
    found = {uid: PodDisk(logs=own) for uid, own in logs.items()}
    for pod in volumes:
        local = NO_USE
        for one in pod.volumes:
            local = local.plus(DiskUse(one.used_bytes, one.inodes_used)) if one.local else local
        by_volume = tuple(VolumeUse(name=one.name, used_bytes=one.used_bytes) for one in pod.volumes)
        found[pod.pod_uid] = PodDisk(found.get(pod.pod_uid, PodDisk()).logs, local, by_volume)
    return found


def memory_available(capacity_bytes: int, working_set_bytes: int) -> int:
    """The signal memory.available, at least 0: the capacity without the working set, so droppable caches are free.

    https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals
    """
    return max(0, capacity_bytes - working_set_bytes)


def pod_usages(
    cgroups: Mapping[str, CgroupFigures], containers: Iterable[ContainerFigures] | None, disks: Mapping[str, PodDisk]
) -> tuple[PodUsage, ...]:
    """One record for each pod that is in any of the three, ordered by UID.

    A pod's cgroup is used where there is one: the sum of its containers lacks the sandbox and memory-backed volumes.
    `containers`: the running ones. Only their logs and those of no container count, as in the kubelet. Without
    knowledge of them, None, all do.
    """
    by_pod: dict[str, list[ContainerFigures]] = {}
    for figures in containers or ():
        by_pod.setdefault(figures.pod_uid, []).append(figures)
    if containers is not None:
        disks = {uid: _of_running(disk, by_pod.get(uid, [])) for uid, disk in disks.items()}
    uids = sorted({*cgroups, *by_pod, *disks})
    return tuple(_pod_usage(uid, cgroups.get(uid), by_pod.get(uid, []), disks.get(uid, PodDisk())) for uid in uids)


def _of_running(disk: PodDisk, own: list[ContainerFigures]) -> PodDisk:
    names = {one.name for one in own} | ({POD_FILES} if own else set())
    return replace(disk, logs={name: use for name, use in disk.logs.items() if name in names})


def _pod_usage(uid: str, cgroup: CgroupFigures | None, own: list[ContainerFigures], disk: PodDisk) -> PodUsage:
    layers, nodefs = NO_USE, disk.volumes
    for figures in own:
        layers = layers.plus(figures.writable_layer)
    for log in disk.logs.values():
        nodefs = nodefs.plus(log)
    everything = layers.plus(nodefs)
    whole = cgroup or _summed(own)
    return PodUsage(
        pod_uid=uid,
        memory_working_set_bytes=whole.memory_working_set_bytes,
        cpu_usage_ns=whole.cpu_ns,
        tasks=whole.tasks,
        disk_bytes=everything.bytes,
        inodes=everything.inodes,
        writable_layer_bytes=layers.bytes,
        writable_layer_inodes=layers.inodes,
        containers=tuple(
            ContainerUsage(
                name=figures.name,
                memory_working_set_bytes=figures.memory_working_set_bytes,
                writable_layer_bytes=figures.writable_layer.bytes,
                log_bytes=disk.logs.get(figures.name, NO_USE).bytes,
            )
            for figures in own
        ),
        volumes=disk.by_volume,
    )


def _summed(own: list[ContainerFigures]) -> CgroupFigures:
    memory, cpu_ns = (one.memory_working_set_bytes for one in own), (one.cpu_ns for one in own)
    return CgroupFigures(bounded_sum(memory), bounded_sum(cpu_ns))


def bounded_sum(values: Iterable[int]) -> int:
    """The sum, at most MOST_USE: a runtime may report up to 2^64-1 for each container."""
    return min(MOST_USE, sum(values))
