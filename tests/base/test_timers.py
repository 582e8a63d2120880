"""The heap of timers."""

from __future__ import annotations

import time

from actors._base.messaging.timers import MIN_COMPACTED, TimerHeap


def test_cancelled_timers_leave_the_heap_early():
    heap = TimerHeap(lambda: None)
    kept = [heap.add(3600, lambda: None) for _ in range(10)]
    for _ in range(10_000):
        heap.add(3600, lambda: None).cancel()
    assert len(heap) == len(kept)
    assert len(heap._heap) <= MIN_COMPACTED


def test_other_timers_fire_after_cancellations():
    heap, fired = TimerHeap(lambda: None), []
    for number in range(500):
        heap.add(0.0, lambda number=number: fired.append(number))
        heap.add(3600, lambda: fired.append(-1)).cancel()
    time.sleep(0.001)
    assert heap.run_due() is None
    assert fired == list(range(500))
