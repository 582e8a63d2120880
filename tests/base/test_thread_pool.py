"""Actors on shared threads: Pykka's guarantees hold, and a blocked actor stops no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pykka
import pytest

from actors._base import PooledActor
from actors._base.process.thread_pool import IDLE_THREADS, ThreadPool
from tests.harness import wait_for


class RealTimers:
    """call_later on a thread of its own."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> threading.Timer:
        timer = threading.Timer(delay_s, callback)
        timer.daemon = True
        timer.start()
        return timer


class Counting(PooledActor):
    """Takes numbers; counts how many of its handlers run at once."""

    def __init__(self, made: list[Counting]) -> None:
        super().__init__(RealTimers())
        made.append(self)
        self.seen: list[int] = []
        self.running = 0
        self.most = 0
        self.failed: list[str] = []
        self.started = False

    def on_start(self) -> None:
        self.started = True

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:  # noqa: ARG002
        self.failed.append(str(exception_value))

    def take(self, number: int) -> None:
        assert self.started
        self.running += 1
        self.most = max(self.most, self.running)
        self.seen.append(number)
        self.running -= 1

    def fail(self) -> None:
        raise ValueError("on purpose")


@pytest.fixture(autouse=True)
def own_pool() -> Iterator[None]:
    PooledActor._pool = None
    yield
    pykka.ActorRegistry.stop_all(block=False)
    PooledActor._pool = None


def started() -> Counting:
    """A running one, itself: its attributes are read while nothing is under way."""
    made: list[Counting] = []
    Counting.start(made)
    return made[0]


def pool() -> ThreadPool:
    assert PooledActor._pool is not None
    return PooledActor._pool


def test_pooled_actor_takes_messages_in_order_one_at_a_time() -> None:
    actors = [started() for _ in range(50)]

    def send() -> None:
        for number in range(100):
            for actor in actors:
                actor.post(actor.take, number)

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(lambda: all(len(actor.seen) == 200 for actor in actors))
    assert all(actor.most == 1 for actor in actors)
    for actor in actors:
        assert sorted(actor.seen) == sorted([*range(100), *range(100)])
    alone = started()
    for number in range(1000):
        alone.post(alone.take, number)
    wait_for(lambda: alone.seen == list(range(1000)))


def test_blocked_actors_delay_no_other() -> None:
    release = threading.Event()
    blocked = [started() for _ in range(6)]
    for actor in blocked:
        actor.post(release.wait)
    free = started()
    free.post(free.take, 1)
    wait_for(lambda: free.seen == [1])
    assert pool().threads >= 7
    blocked[0].post(blocked[0].take, 2)
    assert blocked[0].seen == []
    release.set()
    wait_for(lambda: blocked[0].seen == [2] and pool().threads == IDLE_THREADS)


def test_many_waiting_actors_have_two_threads_at_most() -> None:
    actors = [started() for _ in range(100)]
    wait_for(lambda: all(actor.started for actor in actors) and pool().threads <= IDLE_THREADS)


def test_messages_after_a_stop_fail() -> None:
    actor = started()
    ref = actor.actor_ref
    gate = threading.Event()
    actor.post(gate.wait)
    stopped = ref.stop(block=False)
    late = ref.ask("late", block=False)
    gate.set()
    stopped.get(timeout=5)
    assert not ref.is_alive()
    with pytest.raises(pykka.ActorDeadError):
        late.get(timeout=5)
    with pytest.raises(pykka.ActorDeadError):
        ref.tell("later")


def test_error_ends_that_actor_only() -> None:
    broken, fine = started(), started()
    broken.post(broken.fail)
    wait_for(lambda: broken.failed == ["on purpose"])  # which is told once it is no more
    assert not broken.actor_ref.is_alive()
    fine.post(fine.take, 1)
    wait_for(lambda: fine.seen == [1])
