"""Virtual time, and what happens in it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Timer:
    """One event to come."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Not to happen."""
        self.callback = None


class Clock:
    """Unix seconds. What is due at one moment happens in the order in which it was asked for."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now
        self.settle: Callable[[], None] = lambda: None
        """Called after each event: whoever it woke does what it does without time passing."""
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Have it called in `delay_s` seconds."""
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
        """The next event up to `end`; False when there is none."""
        while self._heap and self._heap[0][0] <= end:
            due, _, timer = heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self.now = max(self.now, due)
                callback()
                self.settle()
                return True
        return False
