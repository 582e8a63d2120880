"""The pool of threads, and actors on it: Pykka's guarantees hold, and a blocked actor stops no other."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pykka
import pytest

from actors._base import PooledActor, profile
from actors._base.process.thread_pool import ACTOR_THREADS, ThreadPool
from proto.agent import flame_graph
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
    before = set(pykka.ActorRegistry.get_all())  # what other tests left needs the pool that they had
    PooledActor._pool = None
    yield
    for ref in set(pykka.ActorRegistry.get_all()) - before:
        with contextlib.suppress(pykka.ActorDeadError):
            ref.stop(block=False)
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


def fixed(threads: int, name: str = "fixed") -> ThreadPool:
    return ThreadPool(RealTimers(), name, threads)


def test_one_thread_works_while_jobs_come_one_by_one() -> None:
    four = fixed(4)
    workers: list[int] = []
    for count in range(1, 6):
        four.submit(lambda: workers.append(threading.get_ident()))
        wait_for(lambda count=count: len(workers) == count and len(four._idle) == 1)
    assert len(set(workers)) == four.threads == 1


def test_a_job_wakes_no_other_idle_thread() -> None:
    four = fixed(4)
    gate = threading.Event()
    natives: list[int] = []

    def start() -> None:
        natives.append(threading.get_native_id())
        gate.wait()

    for _ in range(4):
        four.submit(start)
    wait_for(lambda: len(natives) == 4)
    gate.set()
    wait_for(lambda: len(four._idle) == 4)
    before = at_rest(natives)
    for _ in range(20):
        done = threading.Event()
        four.submit(done.set)
        assert done.wait(5)
        wait_for(lambda: len(four._idle) == 4)
    woken = [one for one in natives if switches(one) > before[one]]
    assert len(woken) == 1


def at_rest(threads: list[int]) -> dict[int, int]:
    """Their switches once all wait for a job.

    An idle thread may still wait for the interpreter's lock, which looks the same. It gets that while this one sleeps.
    """
    seen: list[dict[int, int]] = [{}]

    def rest() -> bool:
        slept = all(asleep(one) for one in threads)
        seen.append({one: switches(one) for one in threads})
        return slept and seen[-1] == seen[-2]

    wait_for(rest, what="they rest")
    return seen[-1]


def asleep(thread: int) -> bool:
    return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def switches(thread: int) -> int:
    """Times that the thread has waited."""
    text = Path(f"/proc/self/task/{thread}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_fixed_pool_runs_so_many_jobs_at_once() -> None:
    two = fixed(2)
    gate = threading.Event()
    started: list[int] = []
    for number in range(5):
        two.submit(lambda number=number: (started.append(number), gate.wait())[0])
    wait_for(lambda: len(started) == 2)
    assert two.threads == 2
    gate.set()
    wait_for(lambda: started[2:] == [2, 3, 4])
    assert two.threads == 2


def test_closed_pool_drops_waiting_jobs_and_ends_its_threads() -> None:
    one = fixed(1)
    gate, running = threading.Event(), threading.Event()
    late: list[str] = []
    one.submit(lambda: (running.set(), gate.wait())[0])
    assert running.wait(5)
    one.submit(lambda: late.append("ran"))
    one.close()
    gate.set()
    wait_for(lambda: one.threads == 0)
    assert late == []
    with pytest.raises(RuntimeError, match="closed"):
        one.submit(lambda: None)


def test_idle_threads_of_a_closed_pool_end() -> None:
    two = fixed(2, name="closes")
    two.submit(lambda: None)
    wait_for(lambda: len(two._idle) == 1)
    two.close()
    wait_for(lambda: not [one for one in threading.enumerate() if one.name.startswith("closes")])
    assert two.threads == 0


def test_failing_job_costs_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    one = fixed(1)
    ran: list[int] = []

    def fail() -> None:
        raise SystemExit("on purpose")

    for number in range(3):
        one.submit(fail)
        one.submit(lambda number=number: ran.append(number))
    wait_for(lambda: ran == [0, 1, 2])
    assert one.threads == 1
    assert [record.message for record in caplog.records] == ["a job of the pool fixed failed"] * 3


def test_idle_threads_of_a_process_are_not_busy_in_a_profile() -> None:
    two = fixed(2, name="rests")
    two.submit(lambda: None)
    wait_for(lambda: len(two._idle) == 1)
    stacks = profile.sample(0.1).result(10)
    rests = {stack: count for stack, count in stacks.items() if stack.startswith("rests")}
    assert rests
    assert not flame_graph.busy(rests)
    two.close()


def test_refused_thread_is_tried_again_while_the_others_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    two = fixed(2)
    gate, hangs = threading.Event(), threading.Event()
    ran: list[str] = []
    two.submit(lambda: (hangs.set(), gate.wait())[0])
    assert hangs.wait(5)
    start, tries = threading.Thread.start, iter([True, True, False])

    def refuse_twice(thread: threading.Thread) -> None:
        if thread.name.startswith("fixed") and next(tries, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_twice)
    two.submit(lambda: ran.append("by the second thread"))
    wait_for(lambda: ran)
    gate.set()


def test_limit_of_threads_refuses_only_the_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    two = fixed(2)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("fixed"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="the machine has no more"):
        two.submit(lambda: None)
    monkeypatch.setattr(threading.Thread, "start", start)
    gate = threading.Event()
    ran: list[str] = []
    two.submit(lambda: (gate.wait(), None)[1])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    two.submit(lambda: ran.append("by the first thread"))
    gate.set()
    wait_for(lambda: ran == ["by the first thread"])


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
    wait_for(lambda: blocked[0].seen == [2] and pool().threads == ACTOR_THREADS)


def test_many_waiting_actors_have_one_thread() -> None:
    actors = [started() for _ in range(100)]
    wait_for(lambda: all(actor.started for actor in actors) and pool().threads <= ACTOR_THREADS)


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
