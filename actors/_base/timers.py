"""Timers of the I/O loop: a heap, and the time until the next one."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Timer:
    """One callback at one moment. `cancel` may come from any thread; a timer that is firing cannot be called back."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not fire."""
        self.callback = None


class TimerHeap:
    """Timers by monotonic time. `add` from any thread; `run_due` from the I/O thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return sum(1 for _, _, timer in list(self._heap) if timer.callback is not None)

    def add(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Fire in `delay_s` seconds."""
        timer = Timer(callback)
        due = time.monotonic() + delay_s
        with self._lock:
            heapq.heappush(self._heap, (due, next(self._order), timer))
            earliest = self._heap[0][2] is timer
        if earliest:
            self._wake()
        return timer

    def run_due(self) -> float | None:
        """Fire what is due; the seconds until the next timer, None without any."""
        while True:
            with self._lock:
                while self._heap and self._heap[0][2].callback is None:
                    heapq.heappop(self._heap)
                if not self._heap:
                    return None
                wait_s = self._heap[0][0] - time.monotonic()
                if wait_s > 0:
                    return wait_s
                timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
