"""Virtual time for a replay: the time of the recording, in the whole process."""

from __future__ import annotations

import time
from collections.abc import Callable

from actors._base.messaging.timers import TimerHeap

SHORTEST_NS = 1000


class Clock:
    """Recorded time, which passes only in `advance`."""

    def __init__(self, started_ns: int, started_at: float) -> None:
        self.now_ns = started_ns
        self._started_ns, self._started_at = started_ns, started_at
        self.timers = TimerHeap(lambda: None)

    def install(self) -> None:
        """Make it the time of this process. `threading` and `queue` have their own references to the real one."""
        time.monotonic_ns = lambda: self.now_ns
        time.monotonic = lambda: self.now_ns / 1e9
        time.time = self.unix
        time.time_ns = lambda: int(self.unix() * 1e9)

    def unix(self) -> float:
        """Unix seconds."""
        return self._started_at + (self.now_ns - self._started_ns) / 1e9

    def advance(self, to_ns: int, settle: Callable[[], bool]) -> bool:
        """Let time pass, with every timer at its time. `settle` runs what timers cause; its False ends this."""
        while True:
            wait_s = self.timers.run_due()
            if not settle():
                return False
            if wait_s is None or self.now_ns + wait_s * 1e9 > to_ns:
                break
            self.now_ns += max(SHORTEST_NS, int(wait_s * 1e9) + 1)
        self.now_ns = max(self.now_ns, to_ns)
        self.timers.run_due()
        return settle()
