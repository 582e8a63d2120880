"""Reads CPU seconds and memory of a process tree by process title, from proc(5)."""

import os
from collections import defaultdict
from pathlib import Path

from proto.common import procfs

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """`root` and all processes below it."""
    found = [root]
    for pid in found:  # grows while it is walked
        found += procfs.children(pid)
    return found


def title(pid: int) -> str:
    """The process's title without the program's name: `probe`, `forkserver`; `supervisor` for the parent."""
    whole = procfs.title(pid)
    return whole.partition(": ")[2] or whole


def cpu_s(root: int) -> dict[str, float]:
    """User and system time by title, that of children which ended and were waited for included."""
    used: dict[str, float] = defaultdict(float)
    for pid in tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        used[title(pid)] += sum(map(int, fields[11:15])) / _TICKS_PER_S  # utime, stime, cutime, cstime
    return dict(used)


def pss_mb(root: int) -> dict[str, float]:
    """Proportional set size in MB (1,000,000 bytes) by title."""
    used: dict[str, float] = defaultdict(float)
    for pid in tree(root):
        used[title(pid)] += procfs.pss_kib(pid) * 1024 / 1e6
    return dict(used)


def difference(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """Return the use in between. A replaced process counts from its new start, and its end with its parent."""
    return {name: round(value - before.get(name, 0.0), 3) for name, value in after.items()}
