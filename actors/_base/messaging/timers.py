"""Timers of the I/O loop, in a heap by due time."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable


class Timer:
    """One callback at one time. Any thread may cancel it until it fires."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not fire."""
        self.callback = None


LONGEST_WAIT_S = 24 * 3600.0
"""epoll(2) refuses to wait for more than 2^31 ms. A probe may have a period of 68 years."""
MIN_COMPACTED = 64
"""Timers in the heap before cancelled ones are removed."""


class TimerHeap:
    """Timers by monotonic time. Call `add` from any thread, `run_due` from the I/O thread.

    Cancelled timers are removed when they may be half of the heap. Otherwise the deadline of a call, an hour long and
    cancelled after a second, would stay for the hour.

    The I/O thread may wait for a first timer that is cancelled. So of many asks one after the other, only the first
    sets the alarm. `drop_cancelled` has it wait for a later one.
    """

    def __init__(self, wake: Callable[[], None], on_fire: Callable[[float], None] = lambda _: None) -> None:
        """`on_fire` gets the seconds by which a timer fires late."""
        self._wake = wake
        self._on_fire = on_fire
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._compact_at = MIN_COMPACTED
        self.looks_at = 0.0
        """The time at which the I/O thread looks at the timers again by itself."""

    def __len__(self) -> int:
        return sum(1 for _, _, timer in list(self._heap) if timer.callback is not None)

    def add(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Fire in `delay_s` seconds."""
        timer = Timer(callback)
        due = time.monotonic() + delay_s
        with self._lock:
            if len(self._heap) >= self._compact_at:
                self._heap = [entry for entry in self._heap if entry[2].callback is not None]
                heapq.heapify(self._heap)
                self._compact_at = max(MIN_COMPACTED, 2 * len(self._heap))
            heapq.heappush(self._heap, (due, next(self._order), timer))
            earlier = due < self.looks_at
            if earlier:
                self.looks_at = due
        if earlier:
            self._wake()
        return timer

    def drop_cancelled(self) -> bool:
        """Remove cancelled timers that are due before all others. Returns True when there were any: then the I/O thread
        may look at the timers later."""
        with self._lock:
            if not self._heap or self._heap[0][2].callback is not None:
                return False
            while self._heap and self._heap[0][2].callback is None:
                heapq.heappop(self._heap)
            self.looks_at = min(self._heap[0][0], time.monotonic() + LONGEST_WAIT_S) if self._heap else math.inf
            return True

    def run_due(self) -> float | None:
        """Fire all due timers. Returns the seconds until it is to be called again; None for never."""
        while True:
            with self._lock:
                now = time.monotonic()
                if not self._heap:
                    self.looks_at = math.inf
                    return None
                if self._heap[0][0] > now:
                    self.looks_at = min(self._heap[0][0], now + LONGEST_WAIT_S)
                    return self.looks_at - now
                due, _, timer = heapq.heappop(self._heap)
                while self._heap and self._heap[0][2].callback is None:
                    heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self._on_fire(now - due)
                callback()
