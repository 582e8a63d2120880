"""/metrics/cadvisor: figures of the cgroups of the node, its pods and their containers. Pure.

Names, labels and units are those of cAdvisor's metrics/prometheus.go, as the kubelet labels them. Samples carry the
time of their reading, except for values that do not change (start, limits). tests/metrics/verdicts.py lists the metrics
that are left out: they are always 0 without cAdvisor's load reader, or are not measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from actors._cgroup.figures import STALL_TIMES, Detail, Figures, StallTime
from actors._cgroup.transfers import COUNTERS
from actors._host.interfaces import Interface
from actors._metrics.text import label_text
from actors.stats.pages.series import Sample, series
from actors.stats.reading import ContainerReading, PodReading, Reading

LABELS = ("container", "id", "image", "name", "namespace", "pod")
NO_DETAIL = Detail()
NO_COUNTERS = (0,) * 11
"""Of a disk without a line in /proc/diskstats, as that of btrfs, ZFS and overlay. cAdvisor writes 0 for it, too."""


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Figures of a container's processes."""

    processes: int = 0
    descriptors: int | None = 0
    sockets: int | None = 0
    """None for both: there are too many to count."""
    open_files_max: int = 0
    """The first process's soft limit; 0 is unknown, -1 is none."""


@dataclass(frozen=True, slots=True)
class Device:
    """A disk with a file system that pods use."""

    name: str
    capacity_bytes: int
    used_bytes: int
    inodes: int
    inodes_free: int
    counters: tuple[int, ...] = NO_COUNTERS
    """Fields 1 to 11 of /proc/diskstats (the kernel's admin-guide/iostats)."""


@dataclass(frozen=True)
class Hardware:
    """Values of the machine's metrics."""

    boot_id: str
    machine_id: str
    system_uuid: str
    cores: int
    physical_cores: int
    sockets: int
    memory_bytes: int
    swap_bytes: int
    kernel_version: str
    os_version: str


@dataclass(slots=True)
class _Row:
    """One cgroup and its label text."""

    labels: str
    figures: Figures
    created: float = 0.0
    processes: ProcessFigures | None = None
    interfaces: list[Interface] = field(default_factory=list)

    @property
    def detail(self) -> Detail:
        return self.figures.detail or NO_DETAIL


_Value = Callable[[_Row], float | None]


class _Metric(NamedTuple):
    """A metric with one sample for each cgroup that has a value."""

    name: str
    kind: str
    help: str
    value: _Value
    extra: str = ""
    timed: bool = True


def _counted(name: str, help_text: str, value: _Value, extra: str = "") -> _Metric:
    return _Metric(f"container_{name}", "counter", help_text, value, extra)


def _gauge(name: str, help_text: str, value: _Value, *, timed: bool = True) -> _Metric:
    return _Metric(f"container_{name}", "gauge", help_text, value, timed=timed)


def _fixed(name: str, help_text: str, value: _Value) -> _Metric:
    return _gauge(name, help_text, value, timed=False)


def _pressure(one: StallTime) -> _Metric:
    return _counted(one.name, one.help, lambda row: one.seconds(row.figures))


def _if_limited(value: Callable[[Detail], float]) -> _Value:
    return lambda row: value(row.detail) if row.detail.quota_us else None


def _of_processes(value: Callable[[ProcessFigures], float | None]) -> _Value:
    return lambda row: value(row.processes) if row.processes is not None else None


METRICS = (
    _counted("cpu_usage_seconds_total", "CPU time.", lambda row: row.figures.cpu_ns / 1e9, 'cpu="total"'),
    _counted("cpu_user_seconds_total", "CPU time in user mode.", lambda row: row.detail.cpu_user_ns / 1e9),
    _counted("cpu_system_seconds_total", "CPU time in the kernel.", lambda row: row.detail.cpu_system_ns / 1e9),
    _counted("cpu_cfs_periods_total", "Periods in which it ran under a quota.", _if_limited(lambda d: d.periods)),
    _counted("cpu_cfs_throttled_periods_total", "Periods with throttling.", _if_limited(lambda d: d.throttled_periods)),
    _counted("cpu_cfs_throttled_seconds_total", "Time it was throttled.", _if_limited(lambda d: d.throttled_ns / 1e9)),
    _counted("cpu_cfs_burst_periods_total", "Periods with a burst.", _if_limited(lambda d: d.burst_periods)),
    _counted("cpu_cfs_burst_seconds_total", "Time in bursts.", _if_limited(lambda d: d.burst_ns / 1e9)),
    _gauge("memory_usage_bytes", "Memory in use, caches too.", lambda row: row.figures.memory_bytes),
    _gauge("memory_working_set_bytes", "Memory less inactive files.", lambda row: row.figures.working_set_bytes),
    _gauge("memory_rss", "Anonymous memory.", lambda row: row.figures.rss_bytes),
    _gauge("memory_cache", "Page cache.", lambda row: row.detail.cache_bytes),
    _gauge("memory_mapped_file", "Mapped files.", lambda row: row.detail.mapped_file_bytes),
    _gauge("memory_total_active_file_bytes", "Active file pages.", lambda row: row.detail.active_file_bytes),
    _gauge("memory_total_inactive_file_bytes", "Inactive file pages.", lambda row: row.detail.inactive_file_bytes),
    _gauge("memory_kernel_usage", "Memory of the kernel for it.", lambda row: row.detail.kernel_bytes),
    _gauge("memory_max_usage_bytes", "The most it ever used.", lambda row: row.detail.max_bytes),
    _gauge("memory_swap", "Swap in use.", lambda row: row.figures.swap_bytes),
    _counted("memory_failcnt", "Times the limit was hit.", lambda row: row.detail.failures),
    _counted("oom_events_total", "Processes the kernel ended for memory.", lambda row: row.detail.oom_kills),
    *(_pressure(one) for one in STALL_TIMES),
    _gauge("threads", "Threads.", lambda row: row.detail.threads),
    _gauge("threads_max", "Threads it may have; 0 for any number.", lambda row: row.detail.threads_max),
    _gauge("processes", "Processes.", _of_processes(lambda found: found.processes)),
    _gauge("file_descriptors", "Open files.", _of_processes(lambda found: found.descriptors)),
    _gauge("sockets", "Open sockets.", _of_processes(lambda found: found.sockets)),
    _gauge("last_seen", "Unix time of this reading.", lambda row: int(row.figures.time)),
    _fixed("start_time_seconds", "Unix time of its start.", lambda row: row.created or None),
    _fixed("spec_cpu_period", "Microseconds of a period.", lambda row: row.detail.period_us or None),
    _fixed("spec_cpu_quota", "Microseconds of each period it may run.", lambda row: row.detail.quota_us or None),
    _fixed("spec_cpu_shares", "Its share of the CPUs.", lambda row: row.detail.shares),
    _fixed("spec_memory_limit_bytes", "Most memory; 0 for any.", lambda row: row.figures.memory_limit_bytes),
    _fixed("spec_memory_reservation_limit_bytes", "Memory kept for it.", lambda row: row.detail.reservation_bytes),
    _fixed("spec_memory_swap_limit_bytes", "Most swap; 0 for any.", lambda row: row.figures.swap_limit_bytes),
)

_FAILURES: tuple[tuple[str, str, Callable[[_Row], float]], ...] = (
    ("pgfault", "container", lambda row: row.figures.page_faults),
    ("pgfault", "hierarchy", lambda row: row.detail.total_page_faults),
    ("pgmajfault", "container", lambda row: row.figures.major_page_faults),
    ("pgmajfault", "hierarchy", lambda row: row.detail.total_major_page_faults),
)

_NETWORK = tuple(
    (f"{way}_{name}", f"{prefix}_{attribute}")
    for way, prefix in (("receive", "rx"), ("transmit", "tx"))
    for name, attribute in (
        ("bytes", "bytes"), ("errors", "errors"), ("packets_dropped", "dropped"), ("packets", "packets"),
    )
)  # fmt: skip
"""Name of a metric, and the attribute of Interface."""

_DISK: tuple[tuple[str, str, Callable[[tuple[int, ...]], float]], ...] = (
    ("reads_total", "counter", lambda c: c[0]),
    ("reads_merged_total", "counter", lambda c: c[1]),
    ("sector_reads_total", "counter", lambda c: c[2]),
    ("read_seconds_total", "counter", lambda c: c[3] / 1000),
    ("writes_total", "counter", lambda c: c[4]),
    ("writes_merged_total", "counter", lambda c: c[5]),
    ("sector_writes_total", "counter", lambda c: c[6]),
    ("write_seconds_total", "counter", lambda c: c[7] / 1000),
    ("io_current", "gauge", lambda c: c[8]),
    ("io_time_seconds_total", "counter", lambda c: c[9] / 1000),
    ("io_time_weighted_seconds_total", "counter", lambda c: c[10] / 1000),
)

_SPACE: tuple[tuple[str, Callable[[Device], int]], ...] = (
    ("limit_bytes", lambda one: one.capacity_bytes),
    ("usage_bytes", lambda one: one.used_bytes),
    ("inodes_total", lambda one: one.inodes),
    ("inodes_free", lambda one: one.inodes_free),
)


def text(
    reading: Reading | None,
    hardware: Hardware,
    processes: Callable[[list[int]], ProcessFigures],
    devices: Iterable[Device] = (),
    disk_path: Callable[[str], str] = str,
) -> bytes:
    """The whole page. Without a reading it has the machine and the error.

    `processes` reads those of a container. `disk_path` returns the path in /dev of the disk `major:minor`, or nothing.
    """
    parts = list(_machine(hardware))
    failed = [("", reading is None, None)]
    parts.append(series("container_scrape_error", "gauge", "1 if figures could not be had, else 0.", failed))
    help_text = "1 if the machine could not be read, else 0."
    parts.append(series("machine_scrape_error", "gauge", help_text, [("", 0, None)]))
    if reading is not None:
        rows = list(_rows(reading, processes))
        parts.extend(_metric(metric, rows) for metric in METRICS)
        parts.append(_memory_failures(rows))
        parts.append(_open_files(rows))
        parts.extend(_network(rows))
        parts.extend(_disks(list(devices), rows, disk_path))
    return "".join(parts).encode()


def _rows(reading: Reading, processes: Callable[[list[int]], ProcessFigures]) -> Iterator[_Row]:
    yield _Row(_labels("/"), reading.node, interfaces=reading.interfaces)
    for name, own in reading.ancestors.items():
        yield _Row(_labels(name), own)
    for pod in reading.pods:
        if pod.cgroup:
            yield _Row(_labels(pod.cgroup, pod), pod.figures, pod.started)
        for one in (*pod.containers, *((pod.sandbox,) if pod.sandbox else ())):
            if not one.cgroup:  # cAdvisor knows no container but by its cgroup
                continue
            row = _Row(_labels(one.cgroup, pod, one), one.figures, one.identity.created, processes(one.pids))
            if one is pod.sandbox:
                row.interfaces = pod.interfaces
            yield row


def _labels(id_: str, pod: PodReading | None = None, one: ContainerReading | None = None) -> str:
    namespace, name = (pod.namespace, pod.name) if pod else ("", "")
    container = (one.identity.name, one.identity.image, one.identity.id) if one else ("", "", "")
    return label_text(LABELS, (container[0], id_, container[1], container[2], namespace, name))


def _metric(metric: _Metric, rows: Iterable[_Row]) -> str:
    extra = f",{metric.extra}" if metric.extra else ""
    samples = [
        (row.labels + extra, value, row.figures.time if metric.timed else None)
        for row in rows
        if (value := metric.value(row)) is not None
    ]
    return series(metric.name, metric.kind, metric.help, samples)


def _memory_failures(rows: Iterable[_Row]) -> str:
    samples = [
        (f'{row.labels},failure_type="{kind}",scope="{scope}"', value(row), row.figures.time)
        for row in rows
        for kind, scope, value in _FAILURES
    ]
    return series("container_memory_failures_total", "counter", "Page faults.", samples)


def _open_files(rows: Iterable[_Row]) -> str:
    samples = [
        (f'{row.labels},ulimit="max_open_files"', row.processes.open_files_max, row.figures.time)
        for row in rows
        if row.processes is not None and row.processes.open_files_max
    ]
    return series("container_ulimits_soft", "gauge", "Soft limits of the first process; -1 for none.", samples)


def _network(rows: list[_Row]) -> Iterator[str]:
    found = [
        (f"{row.labels},{label_text(('interface',), (one.name,))}", one, row.figures.time)
        for row in rows
        for one in row.interfaces
    ]
    for short, attribute in _NETWORK:
        samples = [(labels, getattr(one, attribute), at) for labels, one, at in found]
        yield series(f"container_network_{short}_total", "counter", f"Network: {short.replace('_', ' ')}.", samples)


def _disks(devices: list[Device], rows: list[_Row], disk_path: Callable[[str], str]) -> Iterator[str]:
    """File systems and disks of the node, and each cgroup's transfers.

    A disk has its path, or its numbers if the kernel has no name for it. In cAdvisor loop, ram and CD-ROM devices have
    no name, so its registry drops all but one of their samples.
    """
    root, at = rows[0].labels, rows[0].figures.time
    found = [(f"{root},{label_text(('device',), (one.name,))}", one) for one in devices]
    for short, space in _SPACE:
        samples = [(labels, space(one), at) for labels, one in found]
        yield series(f"container_fs_{short}", "gauge", f"File systems: {short.replace('_', ' ')}.", samples)
    transfers = [
        (f"{row.labels},{label_text(('device',), (disk_path(one.numbers) or one.numbers,))}", one, row.figures.time)
        for row in rows
        for one in row.detail.transfers
    ]
    moved: dict[str, tuple[str, list[Sample]]] = {
        name: (help_text, [(labels, value(one), when) for labels, one, when in transfers])
        for name, help_text, value in COUNTERS
    }
    for short, kind, counter in _DISK:
        counted: list[Sample] = [(labels, counter(one.counters), at) for labels, one in found]
        # A disk of the node may be in both. Its figures all come from /proc/diskstats.
        known = {labels for labels, _, _ in counted}
        counted += (sample for sample in moved.pop(f"fs_{short}", ("", []))[1] if sample[0] not in known)
        yield series(f"container_fs_{short}", kind, f"Disks: {short.replace('_', ' ')}.", counted)
    for name, (help_text, of_cgroups) in moved.items():
        yield series(f"container_{name}", "counter", help_text, of_cgroups)
    use = [
        (f'{labels},major="{one.major}",minor="{one.minor}",operation="{operation}"', value, when)
        for labels, one, when in transfers
        for operation, value in one.bytes.items()
    ]
    yield series("container_blkio_device_usage_total", "counter", "Bytes from and to disks.", use)


def _machine(hardware: Hardware) -> Iterator[str]:
    labels = label_text(
        ("boot_id", "machine_id", "system_uuid"), (hardware.boot_id, hardware.machine_id, hardware.system_uuid)
    )
    for name, help_text, value in (
        ("cpu_cores", "Logical CPUs.", hardware.cores),
        ("cpu_physical_cores", "CPU cores.", hardware.physical_cores),
        ("cpu_sockets", "CPU sockets.", hardware.sockets),
        ("memory_bytes", "Memory.", hardware.memory_bytes),
        ("swap_bytes", "Swap.", hardware.swap_bytes),
    ):
        yield series(f"machine_{name}", "gauge", help_text, [(labels, value, None)])
    versions = label_text(
        ("cadvisorRevision", "cadvisorVersion", "dockerVersion", "kernelVersion", "osVersion"),
        ("", "", "", hardware.kernel_version, hardware.os_version),
    )
    help_text = "1, with the versions of kernel and system."
    yield series("cadvisor_version_info", "gauge", help_text, [(versions, 1, None)])
