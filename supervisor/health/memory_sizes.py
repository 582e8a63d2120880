"""The memory of processes. It is measured rarely, so that many requests take the loop little time."""

from __future__ import annotations

import time
from collections.abc import Iterable

from proto.common.machine import procfs

KEPT_S = 1.0
"""The time until a size is measured again."""
SHARE = 0.05
"""The most of the loop's time for measuring: sizes that took long are kept for longer."""


class MemorySizes:
    """PSS in KiB by pid. The kernel walks a process's whole memory for it: a millisecond, more in a large process."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._due = 0.0

    def of(self, pids: Iterable[int]) -> dict[int, int]:
        """The sizes of these processes; 0 if unknown. A process that is new is measured at once."""
        wanted = set(pids)
        began = time.monotonic()
        is_due = began >= self._due
        if is_due:
            self._known.clear()
        self._known |= {pid: procfs.pss_kib(pid) for pid in wanted - self._known.keys()}
        if is_due:
            ended = time.monotonic()
            self._due = ended + max(KEPT_S, (ended - began) / SHARE)
        return {pid: self._known[pid] for pid in wanted}
