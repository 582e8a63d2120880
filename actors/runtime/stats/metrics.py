"""The table of ListPodSandboxMetrics: names as in cAdvisor, and how each value is calculated. Pure.

With KEP-2371 the node agent shows these instead of cAdvisor's own. CRI's values are integers: seconds are rounded down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from actors._cgroup.figures import STALL_TIMES, Detail, Figures, StallTime
from actors._cgroup.transfers import COUNTERS, Transfers
from actors._host.interfaces import Interface
from proto.cri import api_pb2 as pb

LABELS = ("container", "id", "image", "name", "namespace", "pod")
"""The first labels of every metric; `id` is the cgroup, `name` the container's ID."""
_NO_DETAIL = Detail()
_PER_S = 1_000_000_000


class Disk(NamedTuple):
    """A container's writes, and the file system that holds them."""

    device: str
    used_bytes: int
    limit_bytes: int
    inodes: int
    inodes_free: int


class Processes(NamedTuple):
    """Counts over a container's processes."""

    number: int = 0
    descriptors: int | None = 0
    sockets: int | None = 0
    """None for both: there are too many to count."""
    open_files_max: int = 0
    """The first process's soft limit; -1 for none."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """All measurements of one container, or of a pod's network."""

    figures: Figures = field(default_factory=Figures)
    started_s: int = 0
    processes: Processes = field(default_factory=Processes)
    disk: Disk | None = None
    transfers: dict[str, Transfers] = field(default_factory=dict)
    """By the device's path."""
    interfaces: tuple[Interface, ...] = ()

    @property
    def detail(self) -> Detail:
        """The detailed figures; zeros if they were not read."""
        return self.figures.detail or _NO_DETAIL


Values = Iterable[tuple[tuple[str, ...], float]]


class Metric(NamedTuple):
    """One metric of the table."""

    name: str
    help: str
    kind: pb.MetricType.ValueType
    values: Callable[[Measurements], Values]
    """Each value with its values of `labels`."""
    labels: tuple[str, ...] = ()


def _counter(name: str, text: str, value: Callable[[Measurements], float]) -> Metric:
    return Metric(f"container_{name}", text, pb.COUNTER, lambda facts: [((), value(facts))])


def _gauge(name: str, text: str, value: Callable[[Measurements], float]) -> Metric:
    return Metric(f"container_{name}", text, pb.GAUGE, lambda facts: [((), value(facts))])


def _counted(name: str, text: str, value: Callable[[Processes], int | None]) -> Metric:
    def values(facts: Measurements) -> Values:
        number = value(facts.processes)
        return [((), number)] if number is not None else []

    return Metric(f"container_{name}", text, pb.GAUGE, values)


def _under_quota(name: str, text: str, value: Callable[[Detail], float]) -> Metric:
    def values(facts: Measurements) -> Values:
        return [((), value(facts.detail))] if facts.detail.quota_us else []

    return Metric(f"container_{name}", text, pb.COUNTER, values)


def _of_disk(name: str, text: str, value: Callable[[Disk], int]) -> Metric:
    def values(facts: Measurements) -> Values:
        return [((facts.disk.device,), value(facts.disk))] if facts.disk is not None else []

    return Metric(f"container_fs_{name}", text, pb.GAUGE, values, ("device",))


def _moved(name: str, text: str, value: Callable[[Transfers], int]) -> Metric:
    def values(facts: Measurements) -> Values:
        return [((device,), value(one)) for device, one in facts.transfers.items()]

    return Metric(f"container_{name}", text, pb.COUNTER, values, ("device",))


def _of_network(name: str, text: str, value: Callable[[Interface], int]) -> Metric:
    def values(facts: Measurements) -> Values:
        return [((one.name,), value(one)) for one in facts.interfaces]

    return Metric(f"container_network_{name}_total", text, pb.COUNTER, values, ("interface",))


def _faults(facts: Measurements) -> Iterator[tuple[tuple[str, ...], float]]:
    yield ("pgfault", "container"), facts.figures.page_faults
    yield ("pgfault", "hierarchy"), facts.detail.total_page_faults
    yield ("pgmajfault", "container"), facts.figures.major_page_faults
    yield ("pgmajfault", "hierarchy"), facts.detail.total_major_page_faults


def _device_use(facts: Measurements) -> Iterator[tuple[tuple[str, ...], float]]:
    for device, one in facts.transfers.items():
        for operation, value in one.bytes.items():
            yield (device, str(one.major), str(one.minor), operation), value


def _pressure(one: StallTime) -> Metric:
    return _counter(one.name, one.help, lambda measured: one.seconds(measured.figures) or 0.0)


CONTAINER = (
    Metric(
        "container_cpu_usage_seconds_total",
        "CPU time.",
        pb.COUNTER,
        lambda facts: [(("total",), facts.figures.cpu_ns / _PER_S)],
        ("cpu",),
    ),
    _counter("cpu_user_seconds_total", "CPU time in user mode.", lambda f: f.detail.cpu_user_ns / _PER_S),
    _counter("cpu_system_seconds_total", "CPU time in the kernel.", lambda f: f.detail.cpu_system_ns / _PER_S),
    _under_quota("cpu_cfs_periods_total", "Periods in which it ran under a quota.", lambda d: d.periods),
    _under_quota("cpu_cfs_throttled_periods_total", "Periods with throttling.", lambda d: d.throttled_periods),
    _under_quota("cpu_cfs_throttled_seconds_total", "Time it was throttled.", lambda d: d.throttled_ns / _PER_S),
    _gauge("memory_usage_bytes", "Memory in use, caches too.", lambda f: f.figures.memory_bytes),
    _gauge("memory_working_set_bytes", "Memory less inactive files.", lambda f: f.figures.working_set_bytes),
    _gauge("memory_rss", "Anonymous memory.", lambda f: f.figures.rss_bytes),
    _gauge("memory_cache", "Page cache.", lambda f: f.detail.cache_bytes),
    _gauge("memory_mapped_file", "Mapped files.", lambda f: f.detail.mapped_file_bytes),
    _gauge("memory_kernel_usage", "Memory of the kernel for it.", lambda f: f.detail.kernel_bytes),
    _gauge("memory_max_usage_bytes", "The most it ever used.", lambda f: f.detail.max_bytes),
    _gauge("memory_swap", "Swap in use.", lambda f: f.figures.swap_bytes),
    _counter("memory_failcnt", "Times the limit was hit.", lambda f: f.detail.failures),
    Metric("container_memory_failures_total", "Page faults.", pb.COUNTER, _faults, ("failure_type", "scope")),
    _counter("oom_events_total", "Processes the kernel ended for memory.", lambda f: f.detail.oom_kills),
    *(_pressure(one) for one in STALL_TIMES),
    _of_disk("usage_bytes", "What it has written.", lambda disk: disk.used_bytes),
    _of_disk("limit_bytes", "Size of the file system that this is on.", lambda disk: disk.limit_bytes),
    _of_disk("inodes_total", "Inodes of the file system.", lambda disk: disk.inodes),
    _of_disk("inodes_free", "Inodes of it that are free.", lambda disk: disk.inodes_free),
    *(_moved(*one) for one in COUNTERS),
    Metric(
        "container_blkio_device_usage_total",
        "Bytes from and to disks.",
        pb.COUNTER,
        _device_use,
        ("device", "major", "minor", "operation"),
    ),
    _gauge("processes", "Processes.", lambda f: f.processes.number),
    _gauge("threads", "Threads.", lambda f: f.detail.threads),
    _gauge("threads_max", "Threads it may have; 0 for any number.", lambda f: f.detail.threads_max),
    _counted("file_descriptors", "Open files.", lambda processes: processes.descriptors),
    _counted("sockets", "Open sockets.", lambda processes: processes.sockets),
    Metric(
        "container_ulimits_soft",
        "Soft limits of the first process.",
        pb.GAUGE,
        lambda f: [(("max_open_files",), f.processes.open_files_max)] if f.processes.open_files_max > 0 else [],
        ("ulimit",),
    ),
    _gauge("last_seen", "Unix time of this reading.", lambda f: f.figures.time),
    _gauge("start_time_seconds", "Unix time of its start.", lambda f: f.started_s),
    _gauge("spec_cpu_period", "Microseconds of a period.", lambda f: f.detail.period_us),
    Metric(
        "container_spec_cpu_quota",
        "Microseconds of each period it may run.",
        pb.GAUGE,
        lambda f: [((), f.detail.quota_us)] if f.detail.quota_us else [],
    ),
    _gauge("spec_cpu_shares", "Its share of the CPUs.", lambda f: f.detail.shares),
    _gauge("spec_memory_limit_bytes", "Most memory; 0 for any.", lambda f: f.figures.memory_limit_bytes),
    _gauge("spec_memory_reservation_limit_bytes", "Memory kept for it.", lambda f: f.detail.reservation_bytes),
    _gauge("spec_memory_swap_limit_bytes", "Most swap; 0 for any.", lambda f: f.figures.swap_limit_bytes),
)
POD = (
    _of_network("receive_bytes", "Bytes received.", lambda one: one.rx_bytes),
    _of_network("receive_packets", "Packets received.", lambda one: one.rx_packets),
    _of_network("receive_errors", "Errors in receiving.", lambda one: one.rx_errors),
    _of_network("receive_packets_dropped", "Packets dropped in receiving.", lambda one: one.rx_dropped),
    _of_network("transmit_bytes", "Bytes sent.", lambda one: one.tx_bytes),
    _of_network("transmit_packets", "Packets sent.", lambda one: one.tx_packets),
    _of_network("transmit_errors", "Errors in sending.", lambda one: one.tx_errors),
    _of_network("transmit_packets_dropped", "Packets dropped in sending.", lambda one: one.tx_dropped),
)


def descriptors() -> list[pb.MetricDescriptor]:
    """The answer of ListMetricDescriptors."""
    return [
        pb.MetricDescriptor(name=one.name, help=one.help, label_keys=[*LABELS, *one.labels])
        for one in (*CONTAINER, *POD)
    ]


def samples(table: Iterable[Metric], facts: Measurements, labels: Sequence[str], now_ns: int) -> list[pb.Metric]:
    """The metrics of the table; `labels` are the values of LABELS."""
    return [
        pb.Metric(
            name=one.name,
            timestamp=now_ns,
            metric_type=one.kind,
            label_values=[*labels, *own],
            value=pb.UInt64Value(value=max(0, int(value))),
        )
        for one in table
        for own, value in one.values(facts)
    ]
