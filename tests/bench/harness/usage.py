"""Reads CPU seconds, memory, wake-ups and calls of a process tree from proc(5)."""

import os
from collections import defaultdict
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TypeVar

from proto.common.machine import procfs

K = TypeVar("K", bound=Hashable)
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


def growth(after: Mapping[K, int], before: Mapping[K, int]) -> dict[K, int]:
    """The growth of counters. New ones count from 0, and processes that are gone not at all."""
    return {key: value - before.get(key, 0) for key, value in after.items()}


def wakeups(root: int) -> dict[tuple[str, Path], int]:
    """Voluntary context switches of each thread, by its process's title and its file of proc(5)."""
    paths = ((title(pid), path) for pid in tree(root) for path in Path(f"/proc/{pid}/task").glob("*/status"))
    return {(name, path): number(_read(path), "voluntary_ctxt_switches") for name, path in paths}


def read_and_write_calls(root: int) -> dict[int, int]:
    """Calls of read(2), write(2) and their kin by process; none of sockets' own calls, waits or others."""
    texts = ((pid, _read(Path(f"/proc/{pid}/io"))) for pid in tree(root))
    return {pid: number(text, "syscr") + number(text, "syscw") for pid, text in texts}


def number(text: str, field: str) -> int:
    """The number of a line `FIELD: NUMBER` of a file of proc(5); 0 without that line."""
    values = (line.partition(":")[2] for line in text.splitlines() if line.startswith(f"{field}:"))
    return next((int(value) for value in values), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has just ended
        return ""
