"""The cost of the agent when nothing happens: CPU time, wake-ups and memory of its processes, read from /proc.

The floor is the runtime's own daemon in the same seconds, without its shims.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from supervisor.cli.bench.figures import Figure

PROC = Path("/proc")
INIT = 1
"""systemd listens for a socket-activated runtime: its cost is not the runtime's."""
NAMES = ("idle, CPU of a core", "idle, wake-ups a second", "memory (PSS)")
UNITS = ("%", "", "MB")


class Use(NamedTuple):
    """Use of a process since its start."""

    cpu_s: float
    wake_ups: int
    """Voluntary context switches of its threads: each follows a wait."""


class Cost(NamedTuple):
    """Cost of processes in an interval. None: unknown."""

    cpu_percent: float | None = None
    """Of one core."""
    wake_ups_per_s: float | None = None
    pss_mb: float | None = None
    """Proportional set size in MB (1,000,000 bytes)."""


def measure(
    agent: Collection[int], daemon: int, seconds: float, wait: Callable[[float], object] = time.sleep, proc: Path = PROC
) -> tuple[list[Figure], list[str]]:
    """Figures of the agent's processes beside the daemon's (pid 0: none), and notes on what could not be read."""
    floor = [daemon] if daemon not in (0, INIT, *agent) else []
    pids = [*agent, *floor]
    before, began = read(pids, proc), time.monotonic()
    wait(seconds)
    after, took_s = read(pids, proc), time.monotonic() - began
    ours, theirs = (cost(before, after, of, took_s, pss_mb(of, proc)) for of in (agent, floor))
    figures = [Figure(*row[:3], floor=row[3]) for row in zip(NAMES, UNITS, ours, theirs, strict=True)]
    return figures, _notes(agent, before, after, ours)


def _notes(agent: Collection[int], before: Mapping[int, Use], after: Mapping[int, Use], ours: Cost) -> list[str]:
    notes = []
    if unread := [pid for pid in agent if pid not in before]:
        notes.append(f"idle: cannot read {len(unread)} of {len(agent)} processes in /proc; run it as root on the node")
    if ended := [pid for pid in agent if pid in before and pid not in after]:
        notes.append(f"idle: {len(ended)} processes ended meanwhile and do not count; `supervisor deaths` says why")
    if ours.pss_mb is None:
        notes.append("memory: cannot read /proc/PID/smaps_rollup of each process; run it as root or the agent's user")
    return notes


def cost(
    before: Mapping[int, Use], after: Mapping[int, Use], pids: Collection[int], took_s: float, pss: float | None
) -> Cost:
    """The cost of the processes that are in both readings; wake-ups of ended threads do not count."""
    both = [(before[pid], after[pid]) for pid in pids if pid in before and pid in after]
    if not both:
        return Cost(pss_mb=pss)
    cpu_s = sum(max(0.0, now.cpu_s - then.cpu_s) for then, now in both)
    wake_ups = sum(max(0, now.wake_ups - then.wake_ups) for then, now in both)
    return Cost(100 * cpu_s / took_s, wake_ups / took_s, pss)


def read(pids: Collection[int], proc: Path = PROC) -> dict[int, Use]:
    """The use of each process that can be read."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            found[pid] = Use(_cpu_s(pid), _wake_ups(proc / str(pid)))
    return found


def _cpu_s(pid: int) -> float:
    """CPU time of a process with its ended threads, in nanoseconds' resolution. Raises OSError.

    The clock is that of clock_getcpuclockid(3), by the kernel's formula (posix-timers.h). An idle process uses less in
    some seconds than the clock tick of /proc/PID/stat, 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)


def _wake_ups(process: Path) -> int:
    name = "voluntary_ctxt_switches:"
    found = 0
    for thread in (process / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            lines = (thread / "status").read_text().splitlines()
            found += sum(int(line.removeprefix(name)) for line in lines if line.startswith(name))
    return found


def pss_mb(pids: Collection[int], proc: Path = PROC) -> float | None:
    """The sum over the processes; None when one cannot be read, or of none."""
    try:
        kib = [_pss_kib(proc / str(pid)) for pid in pids]
    except OSError:
        return None
    return sum(kib) * 1024 / 1e6 if kib else None


def _pss_kib(process: Path) -> int:
    lines = (process / "smaps_rollup").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
