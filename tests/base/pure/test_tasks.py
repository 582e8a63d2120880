"""Coroutines between messages: order, cancellation, errors, semaphores. Without a thread: the mailbox is a list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Cancelled, Semaphore, Task, gather


class Mailbox:
    """Runs queued tasks one after another, and collects unhandled errors."""

    def __init__(self) -> None:
        self.waiting = []
        self.unhandled = []

    def spawn(self, coroutine, name="task"):
        task = Task(coroutine, name, self.waiting.append, self._unhandled, lambda _: None)
        task.step()
        return task

    def _unhandled(self, _, error):
        self.unhandled.append(error)

    def run(self):
        while self.waiting:
            self.waiting.pop(0).step()


@pytest.fixture
def mailbox():
    return Mailbox()


def test_coroutine_continues_only_through_the_mailbox(mailbox):
    first: Future[int] = Future()

    async def body():
        return await first + 1

    task = mailbox.spawn(body())
    first.set(41)
    assert not task.done()
    mailbox.run()
    assert task.result(0) == 42


def test_error_comes_out_where_it_is_awaited(mailbox):
    future: Future[int] = Future()

    async def body():
        try:
            await future
        except KeyError:
            return "caught"

    task = mailbox.spawn(body())
    future.set_error(KeyError("x"))
    mailbox.run()
    assert task.result(0) == "caught"


def test_failed_task_without_follower_is_reported(mailbox):
    async def body():
        raise KeyError("x")

    mailbox.spawn(body())
    assert [type(error) for error in mailbox.unhandled] == [KeyError]


def test_cancel_reaches_the_awaited_object_and_cleans_up(mailbox):
    class Call(Future[int]):
        cancelled = False

        def cancel(self):
            self.cancelled = True

    call, cleanup, log = Call(), Future(), []

    async def body():
        try:
            await call
        except Cancelled:
            log.append("cancelled")
            await cleanup
            log.append("clean")
            raise

    task = mailbox.spawn(body())
    task.cancel()
    assert (call.cancelled, log) == (True, ["cancelled"])
    call.set(1)  # its late answer resumes nothing
    mailbox.run()
    assert log == ["cancelled"]
    cleanup.set(None)
    mailbox.run()
    assert log == ["cancelled", "clean"]
    with pytest.raises(Cancelled):
        task.result(0)


def test_except_exception_does_not_swallow_a_cancellation(mailbox):
    never: Future[int] = Future()

    async def retry_for_ever():
        while True:
            try:
                await never
            except Exception:
                continue

    task = mailbox.spawn(retry_for_ever())
    task.cancel()
    assert task.done()


def test_gather_waits_for_all_and_raises_the_first_error(mailbox):
    one, two, three = Future(), Future(), Future()

    async def body():
        return await gather(one, two, three)

    task = mailbox.spawn(body())
    two.set_error(ValueError("second"))
    one.set_error(KeyError("first"))
    mailbox.run()
    assert not task.done()
    three.set(3)
    mailbox.run()
    with pytest.raises(KeyError, match="first"):
        task.result(0)


def test_gather_raises_a_failure_before_its_await(mailbox):
    async def fails():
        raise KeyError("x")

    async def body(first):
        with pytest.raises(KeyError):
            await gather(first, mailbox.spawn(fails()))
        return "ok"

    first: Future[None] = Future()
    task = mailbox.spawn(body(first))
    first.set(None)
    mailbox.run()
    assert task.result(0) == "ok"


@given(st.integers(1, 4), st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12))
def test_semaphore_never_exceeds_its_width_and_ends_free(width, cases):
    mailbox, gate = Mailbox(), Semaphore(width)
    inside, most = [], [0]
    cancels = [cancel for cancel, _ in cases]
    ends = [Future() for _ in cancels]

    async def body(number):
        async with gate.ahead if cases[number][1] else gate:
            inside.append(number)
            most[0] = max(most[0], len(inside))
            try:
                await ends[number]
            finally:
                inside.remove(number)

    tasks = [mailbox.spawn(body(number)) for number in range(len(cancels))]
    mailbox.run()
    for number, cancel in enumerate(cancels):
        if cancel:
            tasks[number].cancel()
        else:
            ends[number].set(None)
        mailbox.run()
    assert most[0] <= width
    assert all(task.done() for task in tasks)
    assert gate._free == width


def test_tasks_ahead_get_a_permit_before_those_that_came_first():
    mailbox, gate, order = Mailbox(), Semaphore(1), []
    first: Future[None] = Future()

    async def hold():
        async with gate:
            await first

    async def body(name, rank):
        async with rank:
            order.append(name)

    mailbox.spawn(hold())
    mailbox.run()
    for name in ("a", "b", "c ahead", "d ahead"):
        mailbox.spawn(body(name, gate.ahead if name.endswith("ahead") else gate))
    mailbox.run()
    first.set(None)
    mailbox.run()
    assert order == ["c ahead", "d ahead", "a", "b"]


def test_coroutine_of_an_ended_actor_gives_its_permit_back():
    mailbox, gate = Mailbox(), Semaphore(1)
    held: Future[None] = Future()

    async def hold():
        async with gate:
            await held

    async def wait():
        async with gate:
            pass

    mailbox.spawn(hold())
    waiting = wait()
    waiting.send(None)
    held.set(None)
    mailbox.run()
    waiting.close()  # garbage collection ends it, as nothing steps a task of an ended actor
    assert gate._free == 1
