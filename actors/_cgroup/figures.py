"""Reads all figures of a cgroup, v1 or v2, for /stats/summary and /metrics/cadvisor.

A read costs some 15 microseconds a file, for hundreds of cgroups. So each file is read once, and those of `Detail` only
on request. A missing file leaves its figures at 0, as in cAdvisor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from actors._cgroup import transfers
from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.transfers import Transfers
from actors._host.machine import memory_used, swap_used

UNLIMITED = 1 << 62
"""A limit of at least this means unlimited: cAdvisor's bound (v1 has 2**63 less a page)."""
_FILE_BYTES = 64 * 1024
_DISKS_BYTES = 4 * _FILE_BYTES
"""Most that is read of a file with lines for each disk: some 2,000 disks."""
MEMORY = {
    False: re.compile(rb"^(total_inactive_file|total_rss|pgfault|pgmajfault|total_swap) (\d+)$", re.MULTILINE),
    True: re.compile(rb"^(inactive_file|anon|file|pgfault|pgmajfault) (\d+)$", re.MULTILINE),
}
"""Finds the lines of memory.stat that a reading without detail needs, on v2 if True. All of them take longer."""
_TICKS_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Pressure:
    """One line of a PSI file: percentages over 10, 60 and 300 s, and microseconds in total."""

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total_us: int = 0


@dataclass(frozen=True, slots=True)
class Stalls:
    """One PSI file. Zeros when the kernel has none, as on v1; the kubelet reports zeros, too."""

    some: Pressure = Pressure()
    full: Pressure = Pressure()


NO_STALLS = Stalls()


@dataclass(slots=True)
class Figures:
    """Bytes, nanoseconds and counts of one cgroup and all below it. A limit of 0 is none."""

    time: float = 0.0
    """Unix seconds of the reading."""
    cpu_ns: int = 0
    memory_bytes: int = 0
    working_set_bytes: int = 0
    rss_bytes: int = 0
    page_faults: int = 0
    major_page_faults: int = 0
    memory_limit_bytes: int = 0
    swap_bytes: int = 0
    swap_max_bytes: int | None = None
    """v1: limit of memory and swap together; v2: limit of swap, of which 0 forbids swap. None is no limit."""
    cpu_stalls: Stalls = NO_STALLS
    memory_stalls: Stalls = NO_STALLS
    io_stalls: Stalls = NO_STALLS
    detail: Detail | None = None

    @property
    def swap_limit_bytes(self) -> int:
        """The same as cAdvisor's metrics show it: 0 for none, too."""
        return self.swap_max_bytes or 0


@dataclass(slots=True)
class Detail:
    """Figures that only cAdvisor's metrics have."""

    cpu_user_ns: int = 0
    cpu_system_ns: int = 0
    periods: int = 0
    throttled_periods: int = 0
    throttled_ns: int = 0
    burst_periods: int = 0
    burst_ns: int = 0
    shares: int = 0
    quota_us: int = 0
    period_us: int = 0
    cache_bytes: int = 0
    mapped_file_bytes: int = 0
    active_file_bytes: int = 0
    inactive_file_bytes: int = 0
    kernel_bytes: int = 0
    max_bytes: int = 0
    failures: int = 0
    total_page_faults: int = 0
    total_major_page_faults: int = 0
    reservation_bytes: int = 0
    oom_kills: int = 0
    threads: int = 0
    threads_max: int = 0
    transfers: tuple[Transfers, ...] = ()


class StallTime(NamedTuple):
    """One of cAdvisor's counters of pressure (PSI)."""

    name: str
    """The name after `container_`."""
    help: str
    seconds: Callable[[Figures], float | None]
    """None when the kernel has no PSI file for the cgroup, as on v1."""


def _stall_s(stalls: str, tasks: str, figures: Figures) -> float | None:
    found: Stalls = getattr(figures, stalls)
    line: Pressure = getattr(found, tasks)
    return None if found is NO_STALLS else line.total_us / 1_000_000


STALL_TIMES = tuple(
    StallTime(
        f"pressure_{resource}_{kind}_seconds_total",
        f"Time in which {who} waited for {what}.",
        partial(_stall_s, f"{resource}_stalls", tasks),
    )
    for resource, what in (("cpu", "a CPU"), ("memory", "memory"), ("io", "a disk"))
    for kind, tasks, who in (("waiting", "some", "some task"), ("stalled", "full", "all tasks"))
)


def read(name: str, tree: Hierarchy, now: float, *, detailed: bool = False) -> Figures | None:
    """Return the figures of the cgroup `name` (`/` is the root); None when it does not exist. Never raises OSError."""
    where = tree.path("memory", name)
    if where is None:
        return None
    return _read_v2(name, where, now, detailed) if tree.unified else _read_v1(name, tree, now, detailed)


def processes(name: str, tree: Hierarchy) -> list[int]:
    """Return the pids in the cgroup itself, without those below it."""
    where = tree.path("memory", name)
    return [int(pid) for pid in _read(f"{where}/cgroup.procs").split()] if where else []


def created(name: str, tree: Hierarchy) -> float:
    """Return the Unix time of the cgroup's creation; 0 when it does not exist.

    A file tells it: the directory's time changes later.
    """
    where = tree.path("memory", name)
    try:
        return os.stat(f"{where}/cgroup.procs").st_mtime
    except OSError:
        return 0.0


def children(name: str, tree: Hierarchy) -> list[str]:
    """Return the last components of the cgroups directly below `name`."""
    where = tree.path("memory", name)
    try:
        return [entry.name for entry in os.scandir(where) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


# v1


def _read_v1(name: str, tree: Hierarchy, now: float, detailed: bool) -> Figures | None:
    directory, accounting = tree.path("memory", name), tree.path("cpuacct", name)
    current = _read(f"{directory}/memory.usage_in_bytes")
    if not current:
        return None
    used = int(current)
    values = stat(f"{directory}/memory.stat", None if detailed else MEMORY[False])
    limited = name.strip("/") != ""
    figures = Figures(
        time=now,
        cpu_ns=number(f"{accounting}/cpuacct.usage"),
        memory_bytes=used,
        working_set_bytes=max(0, used - values.get("total_inactive_file", 0)),
        rss_bytes=values.get("total_rss", 0),
        page_faults=values.get("pgfault", 0),
        major_page_faults=values.get("pgmajfault", 0),
        memory_limit_bytes=_limit(f"{directory}/memory.limit_in_bytes") if limited else 0,
        swap_bytes=values.get("total_swap", 0),
        swap_max_bytes=_swap_max(f"{directory}/memory.memsw.limit_in_bytes") if limited else None,
    )
    if detailed:
        figures.detail = _detail_v1(name, tree, values)
    return figures


def _detail_v1(name: str, tree: Hierarchy, values: dict[str, int]) -> Detail:
    directory, accounting = tree.path("memory", name), tree.path("cpuacct", name)
    cpu, pids = tree.path("cpu", name), tree.path("pids", name)
    bandwidth = stat(f"{cpu}/cpu.stat")
    times = stat(f"{accounting}/cpuacct.stat")
    return Detail(
        cpu_user_ns=times.get("user", 0) * _TICKS_NS,
        cpu_system_ns=times.get("system", 0) * _TICKS_NS,
        periods=bandwidth.get("nr_periods", 0),
        throttled_periods=bandwidth.get("nr_throttled", 0),
        throttled_ns=bandwidth.get("throttled_time", 0),
        burst_periods=bandwidth.get("nr_bursts", 0),
        burst_ns=bandwidth.get("burst_time", 0),
        shares=number(f"{cpu}/cpu.shares"),
        quota_us=max(0, number(f"{cpu}/cpu.cfs_quota_us")),
        period_us=number(f"{cpu}/cpu.cfs_period_us"),
        cache_bytes=values.get("total_cache", 0),
        mapped_file_bytes=values.get("total_mapped_file", 0),
        active_file_bytes=values.get("total_active_file", 0),
        inactive_file_bytes=values.get("total_inactive_file", 0),
        kernel_bytes=number(f"{directory}/memory.kmem.usage_in_bytes"),
        max_bytes=number(f"{directory}/memory.max_usage_in_bytes"),
        failures=number(f"{directory}/memory.failcnt"),
        total_page_faults=values.get("total_pgfault", 0),
        total_major_page_faults=values.get("total_pgmajfault", 0),
        reservation_bytes=_limit(f"{directory}/memory.soft_limit_in_bytes"),
        oom_kills=stat(f"{directory}/memory.oom_control").get("oom_kill", 0),
        threads=number(f"{pids}/pids.current"),
        threads_max=_limit(f"{pids}/pids.max"),
        transfers=_transfers_v1(tree.path("blkio", name)),
    )


def _transfers_v1(where: str | None) -> tuple[Transfers, ...]:
    """As the kubelet, but without the files of BFQ: these have only the disks with that scheduler."""
    if where is None:
        return ()
    files = [f"{where}/blkio.throttle.{name}" for name in ("io_service_bytes", "io_serviced")]
    # Old kernels have no recursive files.
    return transfers.parse_v1(*(_read(f"{one}_recursive", _DISKS_BYTES) or _read(one, _DISKS_BYTES) for one in files))


# v2


def _read_v2(name: str, where: str, now: float, detailed: bool) -> Figures | None:
    current = _read(f"{where}/memory.current")
    if not current and (name.strip("/") or not os.path.isdir(where)):  # only the root has no such file
        return None
    cpu = stat(f"{where}/cpu.stat")
    values = stat(f"{where}/memory.stat", None if detailed else MEMORY[True])
    used = int(current) if current else root_memory_bytes(values)
    figures = Figures(
        time=now,
        cpu_ns=cpu.get("usage_usec", 0) * 1000,
        memory_bytes=used,
        working_set_bytes=max(0, used - values.get("inactive_file", 0)),
        rss_bytes=values.get("anon", 0),
        page_faults=values.get("pgfault", 0),
        major_page_faults=values.get("pgmajfault", 0),
        memory_limit_bytes=_limit(f"{where}/memory.max"),
        swap_bytes=number(f"{where}/memory.swap.current") if current else swap_used(),
        swap_max_bytes=_swap_max(f"{where}/memory.swap.max"),
        cpu_stalls=_stalls(f"{where}/cpu.pressure"),
        memory_stalls=_stalls(f"{where}/memory.pressure"),
        io_stalls=_stalls(f"{where}/io.pressure"),
    )
    if detailed:
        figures.detail = _detail_v2(where, values, cpu)
    return figures


def _detail_v2(where: str, values: dict[str, int], cpu: dict[str, int]) -> Detail:
    quota, _, period = _read(f"{where}/cpu.max").decode().strip().partition(" ")
    events = stat(f"{where}/memory.events")
    return Detail(
        cpu_user_ns=cpu.get("user_usec", 0) * 1000,
        cpu_system_ns=cpu.get("system_usec", 0) * 1000,
        periods=cpu.get("nr_periods", 0),
        throttled_periods=cpu.get("nr_throttled", 0),
        throttled_ns=cpu.get("throttled_usec", 0) * 1000,
        burst_periods=cpu.get("nr_bursts", 0),
        burst_ns=cpu.get("burst_usec", 0) * 1000,
        shares=shares_of_weight(number(f"{where}/cpu.weight")),
        quota_us=int(quota) if quota.isdigit() else 0,
        period_us=int(period) if period.isdigit() else 0,
        cache_bytes=values.get("file", 0),
        mapped_file_bytes=values.get("file_mapped", 0),
        active_file_bytes=values.get("active_file", 0),
        inactive_file_bytes=values.get("inactive_file", 0),
        kernel_bytes=values.get("kernel", 0),
        max_bytes=number(f"{where}/memory.peak"),
        failures=events.get("max", 0),
        total_page_faults=values.get("pgfault", 0),
        total_major_page_faults=values.get("pgmajfault", 0),
        reservation_bytes=number(f"{where}/memory.min"),  # as cAdvisor
        oom_kills=events.get("oom_kill", 0),
        threads=number(f"{where}/pids.current"),
        threads_max=_limit(f"{where}/pids.max"),
        transfers=transfers.parse_v2(_read(f"{where}/io.stat", _DISKS_BYTES)),
    )


def root_memory_bytes(values: dict[str, int]) -> int:
    """Return the usage of v2's root, which has no memory.current, from its memory.stat.

    As in opencontainers/cgroups, which the kubelet uses: without memory of the kernel and reserved huge pages. Without
    the memory controller there is no such file, and all memory in use counts.
    """
    return values["anon"] + values.get("file", 0) if "anon" in values else memory_used()


def shares_of_weight(weight: int) -> int:
    """Return cpu.shares of v1 for cpu.weight of v2 by cAdvisor's formula; 0 for none."""
    return 2 + (weight - 1) * 262_142 // 9_999 if weight else 0


# Files


def _read(path: str, most_bytes: int | None = None) -> bytes:
    """Return a kernel file's content, of `most_bytes` the beginning; empty when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = [os.read(fd, _FILE_BYTES)]
        while len(parts[-1]) == _FILE_BYTES and (most_bytes is None or len(parts) * _FILE_BYTES < most_bytes):
            parts.append(os.read(fd, _FILE_BYTES))
        return b"".join(parts)
    except OSError:  # the cgroup was removed after the open
        return b""
    finally:
        os.close(fd)


def number(path: str) -> int:
    """Return the number in a file; 0 when it cannot be read."""
    try:
        return int(_read(path))
    except ValueError:
        return 0


def _limit(path: str) -> int:
    found = number(path)
    return found if found < UNLIMITED else 0


def _swap_max(path: str) -> int | None:
    """Return the limit; None for `max`, and for a missing file: the kernel counts no swap, or the cgroup has gone."""
    try:
        found = int(_read(path))
    except ValueError:
        return None
    return found if found < UNLIMITED else None


def stat(path: str, wanted: re.Pattern[bytes] | None = None) -> dict[str, int]:
    """Return a file of `key number` lines; empty when it cannot be read. `wanted` finds some of the lines."""
    if wanted is not None:
        return {key.decode(): int(value) for key, value in wanted.findall(_read(path))}
    words = _read(path).decode().split()
    try:
        return dict(zip(words[::2], map(int, words[1::2]), strict=False))
    except ValueError:
        return {}


def _stalls(path: str) -> Stalls:
    found = {}
    for line in _read(path).decode().splitlines():
        kind, *fields = line.split()
        values = dict(field.split("=", 1) for field in fields)
        found[kind] = Pressure(
            float(values.get("avg10", 0)),
            float(values.get("avg60", 0)),
            float(values.get("avg300", 0)),
            int(values.get("total", 0)),
        )
    return Stalls(found.get("some", Pressure()), found.get("full", Pressure())) if found else NO_STALLS
