"""Virtual time with a queue of timed events."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Timer:
    """One future event."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Drop the event."""
        self.callback = None


class Clock:
    """Virtual monotonic time in seconds. Events of the same time run in the order of their calls."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now
        self.behind_s = 0.0
        """Seconds by which Unix time is behind `now`: a test sets the machine's clock back."""
        self.settle: Callable[[], None] = lambda: None
        """Called after each event, to run all jobs that it has caused while time stands still."""
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    @property
    def unix(self) -> float:
        """Unix time."""
        return self.now - self.behind_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in `delay_s` seconds."""
        timer = Timer(callback)
        heapq.heappush(self._heap, (self.now + max(0.0, delay_s), next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        self.settle()
        while self.step(end):
            pass
        self.now = max(self.now, end)

    def step(self, end: float = float("inf")) -> bool:
        """Run the next event up to `end`; False if there is none."""
        while self._heap and self._heap[0][0] <= end:
            due, _, timer = heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self.now = max(self.now, due)
                callback()
                self.settle()
                return True
        return False
