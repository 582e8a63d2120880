"""Messages the stats actor receives: questions of eviction, image_gc, the server and consoles."""

from __future__ import annotations

from typing import Literal

from proto.wire.message import Message, Record, Request


class FsStats(Record, frozen=True, kw_only=True):
    """One file system, in bytes and inodes."""

    path: str
    device: int
    """st_dev: equal devices are one file system."""
    capacity_bytes: int
    available_bytes: int
    inodes: int
    inodes_free: int
    used_bytes: int = 0
    """What is reserved for root is neither used nor available."""


class NodeStats(Message, frozen=True, kw_only=True):
    """The node's state as the eviction signals need it."""

    time: float
    """Unix seconds of the measurement."""
    memory_capacity_bytes: int
    memory_working_set_bytes: int
    """Root cgroup usage less inactive file pages, as the kubelet's memory.available uses it."""
    memory_available_bytes: int
    nodefs: FsStats
    imagefs: FsStats
    pids_max: int = 0
    pids_running: int = 0


class GetNodeStats(Request[NodeStats], frozen=True, kw_only=True):
    """Measure now, or give what is at most `max_age_s` old. A repeat is harmless."""

    max_age_s: float = 1.0


class ContainerUsage(Record, frozen=True, kw_only=True):
    """What one running container uses now."""

    name: str
    memory_working_set_bytes: int = 0
    writable_layer_bytes: int = 0
    log_bytes: int = 0


class VolumeUse(Record, frozen=True, kw_only=True):
    """What one volume of a pod takes, wherever it is."""

    name: str
    used_bytes: int


class PodUsage(Record, frozen=True, kw_only=True):
    """What one pod uses now."""

    pod_uid: str
    memory_working_set_bytes: int
    disk_bytes: int
    """Writable layers, logs and local volumes."""
    inodes: int = 0
    cpu_usage_ns: int = 0
    writable_layer_bytes: int = 0
    """The part of `disk_bytes` that is on imagefs; the rest is on nodefs."""
    writable_layer_inodes: int = 0
    containers: tuple[ContainerUsage, ...] = ()
    """Where asked for, as far as the runtime tells."""
    volumes: tuple[VolumeUse, ...] = ()
    """With disk figures."""


class PodUsages(Message, frozen=True, kw_only=True):
    """Usage of every pod with containers."""

    time: float
    pods: tuple[PodUsage, ...]


class GetPodUsages(Request[PodUsages], frozen=True, kw_only=True):
    """Measure pods now, or give what is at most `max_age_s` old. A repeat is harmless."""

    max_age_s: float = 10.0
    with_disk: bool = False
    """Disk figures walk directories, so only where they are ranked by."""
    with_containers: bool = False
    """Containers' own figures cost a CRI call."""


class Document(Message, frozen=True, kw_only=True):
    """A text for whoever asked over HTTP, as it goes out."""

    data: bytes

    def __repr__(self) -> str:
        return f"Document({len(self.data)} bytes)"


class GetSummary(Request[Document], frozen=True, kw_only=True):
    """The JSON of /stats/summary (proto.node.summary.Summary), measured now or at most `max_age_s` ago.

    The first one for a while takes a second longer: CPU in use needs two readings. Refused Unavailable when cgroups
    cannot be read. A repeat is harmless.
    """

    only_cpu_and_memory: bool = False
    """Without disks, network and processes, which cost calls of the runtime and walks."""
    max_age_s: float = 1.0


class GetExposition(Request[Document], frozen=True, kw_only=True):
    """The text of /metrics/resource or /metrics/cadvisor; when nothing can be read it says so. A repeat is harmless."""

    page: Literal["resource", "cadvisor"]
    max_age_s: float = 1.0
