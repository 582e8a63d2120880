"""The heap of timers."""

from __future__ import annotations

import math
import time

import pytest

from actors._base.messaging import timers
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


@pytest.mark.parametrize("delay_s", [3600.0 * 24 * 30, float((1 << 31) - 1), 1e18])
def test_loop_waits_for_no_longer_than_epoll_can(delay_s: float) -> None:
    heap = TimerHeap(lambda: None)
    heap.add(delay_s, lambda: None)
    assert 0 < (heap.run_due() or 0) * 1000 < 1 << 31
    heap.add(60, lambda: None)
    assert 0 < (heap.run_due() or 0) <= 60


class Clock:
    """Stands still in place of the module `time`."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timers, "time", made)
    return made


@pytest.mark.usefixtures("clock")
def test_only_a_timer_before_the_next_look_wakes_the_loop():
    wakes: list[int] = []
    heap = TimerHeap(lambda: wakes.append(1))
    heap.add(1, lambda: None)
    assert wakes == []
    assert heap.run_due() == 1
    heap.add(5, lambda: None)
    assert wakes == []
    heap.add(0.5, lambda: None)
    assert wakes == [1]


def test_a_loop_waits_for_a_cancelled_timer_once(clock: Clock):
    wakes: list[int] = []
    heap = TimerHeap(lambda: wakes.append(1))
    heap.run_due()
    for delay_s in (0.001, 5, 6):
        heap.add(delay_s, lambda: None).cancel()
        assert heap.run_due() is not None
    assert wakes == [1]
    clock.now += 0.002
    assert heap.run_due() is None


def test_loop_waits_for_the_first_timer_that_fires(clock: Clock):
    wakes: list[int] = []
    heap = TimerHeap(lambda: wakes.append(1))
    heap.run_due()
    for delay_s in (1, 2):
        heap.add(delay_s, lambda: None).cancel()
    later = heap.add(5, lambda: None)
    assert heap.looks_at == clock.now + 1
    assert heap.drop_cancelled()
    assert heap.looks_at == clock.now + 5
    assert not heap.drop_cancelled(), "there is nothing more to drop"
    heap.add(3, lambda: None)
    assert len(wakes) == 2, "it is before the next look again"
    later.cancel()
    assert not heap.drop_cancelled(), "another one is due before"


def test_no_timer_is_waited_for_when_all_are_cancelled():
    heap = TimerHeap(lambda: None)
    heap.run_due()
    heap.add(1, lambda: None).cancel()
    assert heap.drop_cancelled()
    assert heap.looks_at == math.inf
    assert not heap.drop_cancelled()
