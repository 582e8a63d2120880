"""Messages that the stats actor receives: requests for usage of the node, its pods and its file systems."""

from __future__ import annotations

from typing import Literal

from proto.wire.message import Message, Record, Request


class FsStats(Record, frozen=True, kw_only=True):
    """One file system, in bytes and inodes."""

    path: str
    device: int
    """st_dev, or the number of the disk beneath a btrfs subvolume: equal devices are one file system."""
    capacity_bytes: int
    available_bytes: int
    inodes: int
    inodes_free: int
    used_bytes: int = 0
    """Blocks reserved for root are neither used nor available."""


class NodeStats(Message, frozen=True, kw_only=True):
    """Memory, file systems and processes of the node, for the eviction signals."""

    time: float
    """Unix seconds of the measurement."""
    memory_capacity_bytes: int
    memory_working_set_bytes: int
    """Usage of the root cgroup without inactive file pages, as for the kubelet's memory.available."""
    memory_available_bytes: int
    nodefs: FsStats
    imagefs: FsStats
    containerfs: FsStats | None = None
    """The disk of containers' writable layers; None when they are on imagefs. Capacity 0: it cannot be read."""
    pids_max: int = 0
    pids_running: int = 0


class GetNodeStats(Request[NodeStats], frozen=True, kw_only=True):
    """Ask for the node's figures of at most `max_age_s` of age. A repeat is harmless."""

    max_age_s: float = 1.0


class ContainerUsage(Record, frozen=True, kw_only=True):
    """Present usage of a running container."""

    name: str
    memory_working_set_bytes: int = 0
    writable_layer_bytes: int = 0
    log_bytes: int = 0


class VolumeUse(Record, frozen=True, kw_only=True):
    """Disk space of one volume of a pod."""

    name: str
    used_bytes: int


class PodUsage(Record, frozen=True, kw_only=True):
    """Present usage of a pod."""

    pod_uid: str
    memory_working_set_bytes: int
    disk_bytes: int
    """Writable layers, logs, local volumes, the hosts file and termination messages."""
    inodes: int = 0
    cpu_usage_ns: int = 0
    writable_layer_bytes: int = 0
    """The part of `disk_bytes` on imagefs or containerfs; the rest is on nodefs."""
    writable_layer_inodes: int = 0
    tasks: int = 0
    """Processes and threads in the pod's cgroup, as pid.available counts them."""
    containers: tuple[ContainerUsage, ...] = ()
    """With `with_containers`, as far as the runtime reports them."""
    volumes: tuple[VolumeUse, ...] = ()
    """With `with_disk`."""


class PodUsages(Message, frozen=True, kw_only=True):
    """Usage of every pod with containers."""

    time: float
    pods: tuple[PodUsage, ...]


class GetPodUsages(Request[PodUsages], frozen=True, kw_only=True):
    """Ask for the pods' figures of at most `max_age_s` of age. A repeat is harmless."""

    max_age_s: float = 10.0
    with_disk: bool = False
    """Measure disk usage too, which walks directories."""
    with_containers: bool = False
    """Measure containers too, which takes a CRI call."""


class Throttling(Message, frozen=True, kw_only=True):
    """The CPU limit (cpu.max, cpu.cfs_quota_us) that throttles a container in most periods; zeros: none does."""

    limit_milli: int = 0
    """The limit in thousandths of a CPU."""
    periods: int = 0
    """Periods of the scheduler in which it had work to do."""
    throttled_periods: int = 0
    """The periods at whose end it had to wait."""
    throttled_ms: int = 0
    """The sum of its waits."""
    over_s: float = 0.0
    """Seconds of the figures up to now; 0: since the container's start."""
    of_pod: bool = False
    """The limit is that of the whole pod."""

    @property
    def in_words(self) -> str:
        """The figures and the remedy, for the cause of a probe's timeout; empty for zeros."""
        if not self.periods:
            return ""
        when = f"in the last {self.over_s:g} s" if self.over_s else "since its start"
        held = f"{self.throttled_periods} of its {self.periods} CPU periods"
        share = f"{held} {when}, {self.throttled_ms / 1000:g} s in all"
        whose = "the pod's limit" if self.of_pod else "limits.cpu"
        return f"throttled in {share}, by {whose} of {self.limit_milli}m: raise limits.cpu or timeoutSeconds"


class GetThrottling(Request[Throttling], frozen=True, kw_only=True):
    """Ask how CPU limits hold a running container back. The answer takes half a second where there is a limit.

    Refused Unavailable when cgroups cannot be read. Zeros for an unknown container. A repeat is harmless.
    """

    pod_uid: str
    container_id: str
    """CRI ID."""


class Document(Message, frozen=True, kw_only=True):
    """The body of an HTTP response."""

    data: bytes

    def __repr__(self) -> str:
        return f"Document({len(self.data)} bytes)"


class GetSummary(Request[Document], frozen=True, kw_only=True):
    """Ask for the JSON of /stats/summary (proto.node.summary.Summary), of at most `max_age_s` of age.

    The first request after a pause takes a second longer, because CPU usage needs two readings. Refused Unavailable
    when cgroups cannot be read. A repeat is harmless.
    """

    only_cpu_and_memory: bool = False
    """Leave out disks, network and processes, which take runtime calls and directory walks."""
    max_age_s: float = 1.0


class GetExposition(Request[Document], frozen=True, kw_only=True):
    """Ask for the text of /metrics/resource or /metrics/cadvisor. Read errors are in it. A repeat is harmless."""

    page: Literal["resource", "cadvisor"]
    max_age_s: float = 1.0
