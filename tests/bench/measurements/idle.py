"""The cost of an idle agent: CPU time, wake-ups of its threads, and system calls."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.harness import usage

SETTLE_S = 2.0
"""For the wake of what was before."""
SYSTEM_CALLS, READS_AND_WRITES = "system calls", "read and write calls"
_EVENT = "raw_syscalls:sys_enter"
_COUNT = f'mount -t tracefs tracefs /sys/kernel/tracing; exec perf stat -x, -o "$0" -e {_EVENT} -p "$1" -- sleep "$2"'


@dataclass(frozen=True)
class Idle:
    """Over all processes of the agent."""

    by_process_percent: dict[str, float]
    """Share of one core, by title."""
    wakeups_by_process_per_s: dict[str, float]
    """Voluntary context switches of all threads, by title: each is a wait, and so a wake-up."""
    calls_per_s: float
    calls: str
    """The counted calls: SYSTEM_CALLS by perf(1), or READS_AND_WRITES by proc(5) where perf cannot count."""

    @property
    def percent(self) -> float:
        """Share of one core."""
        return round(sum(self.by_process_percent.values()), 3)

    @property
    def wakeups_per_s(self) -> float:
        """Of all processes."""
        return round(sum(self.wakeups_by_process_per_s.values()), 3)


def measure(pid: int, seconds: float) -> Idle:
    """Look at the processes from `pid` down for some seconds."""
    time.sleep(SETTLE_S)
    cpu, wakeups, calls, began = usage.cpu_s(pid), usage.wakeups(pid), usage.read_and_write_calls(pid), time.monotonic()
    counted = system_calls(usage.tree(pid), seconds)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    took_s = time.monotonic() - began
    used = usage.difference(usage.cpu_s(pid), cpu)
    percent = {name: round(100 * value / took_s, 3) for name, value in used.items()}
    woken = by_title_per_s(usage.growth(usage.wakeups(pid), wakeups), took_s)
    if counted is None:
        called = sum(usage.growth(usage.read_and_write_calls(pid), calls).values())
        return Idle(percent, woken, called / took_s, READS_AND_WRITES)
    return Idle(percent, woken, counted / seconds, SYSTEM_CALLS)


def by_title_per_s(grown: Mapping[tuple[str, Path], int], seconds: float) -> dict[str, float]:
    """The sum of all threads' counts by title, a second."""
    found: dict[str, float] = defaultdict(float)
    for (name, _), count in grown.items():
        found[name] += count / seconds
    return {name: round(value, 2) for name, value in found.items()}


def system_calls(pids: Sequence[int], seconds: float) -> int | None:
    """System calls of these processes, with their threads, in so many seconds. None where perf cannot count them.

    perf needs tracefs, which it gets in a mount namespace of its own.
    """
    if shutil.which("perf") is None or shutil.which("unshare") is None:
        return None
    with tempfile.NamedTemporaryFile() as output:
        targets = ",".join(map(str, pids))
        command = ["unshare", "--mount", "sh", "-c", _COUNT, output.name, targets, str(seconds)]
        done = subprocess.run(command, stderr=subprocess.DEVNULL, check=False, timeout=seconds + 60)
        return counted_calls(Path(output.name).read_text()) if done.returncode == 0 else None


def counted_calls(text: str) -> int | None:
    """The count in the output of `perf stat -x,`; None without one, such as for `<not supported>`."""
    fields = (line.split(",") for line in text.splitlines() if _EVENT in line)
    return next((int(found[0]) for found in fields if found[0].isdigit()), None)
