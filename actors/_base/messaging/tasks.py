"""Coroutines that run in an actor's own thread, between its messages.

A handler that waits for the runtime, another actor or time is an `async def`. Each `await` returns the thread to the
mailbox, and the result comes back as one more message. So handlers need no lock, and no call blocks a thread. It is not
asyncio: Pykka's mailbox is the event loop.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, TypeVar

from actors._base.messaging import tracing
from actors._base.messaging.futures import Awaitable, Future
from actors._base.messaging.tracing import CURRENT
from actors._base.messaging.waits import SUBJECT

T = TypeVar("T")


class Cancelled(BaseException):
    """Raised inside a coroutine at its await when its task is cancelled; not an Exception, so that `except Exception`
    around a retry does not swallow it."""


class Task(Future[T], Generic[T]):
    """A running coroutine; itself awaitable.

    `resume` puts the task back into its actor's mailbox. `unhandled` gets an exception that no caller awaits yet.
    """

    __slots__ = ("_awaited", "_coroutine", "_on_end", "_resume", "_subject", "_trace", "_unhandled", "name")

    def __init__(
        self,
        coroutine: Coroutine[Any, None, T],
        name: str,
        resume: Callable[[Task[T]], None],
        unhandled: Callable[[Task[T], BaseException], None],
        on_end: Callable[[Task[T]], None],
    ) -> None:
        super().__init__()
        self.name = name
        self._coroutine = coroutine
        self._resume = resume
        self._unhandled = unhandled
        self._on_end = on_end
        self._awaited: Awaitable[Any] | None = None
        self._trace = CURRENT.get()
        """Its context between two steps."""
        self._subject = SUBJECT.get()
        """The subject of its waits between two steps."""

    def step(self, throw: BaseException | None = None) -> None:
        """Run to the next await. Only in the actor's thread."""
        if self.done():
            return
        if throw is None and self._awaited is not None and not _is_done(self._awaited):
            return  # an await that a cancellation has ended was completed later
        self._awaited = None
        try:
            awaited = self._advance_as_itself(throw)
        except StopIteration as stop:
            self._end(stop.value, None)
        except Cancelled as cancelled:
            self._end(None, cancelled)
        except Exception as error:
            unhandled = not self._followed
            self._end(None, error)
            if unhandled:
                self._unhandled(self, error)
        else:
            self._awaited = awaited
            awaited.add_done_callback(lambda _: self._resume(self))

    def _advance_as_itself(self, throw: BaseException | None) -> Any:
        """Run with the task's own subject, which it may change, and restore that of the thread."""
        outer = SUBJECT.get()
        SUBJECT.set(self._subject)
        try:
            return self._advance(throw) if tracing.recorder is None else self._advance_traced(throw)
        finally:
            self._subject = SUBJECT.get()
            SUBJECT.set(outer)

    def _advance(self, throw: BaseException | None) -> Any:
        return self._coroutine.send(None) if throw is None else self._coroutine.throw(throw)

    def _advance_traced(self, throw: BaseException | None) -> Any:
        """Run in the task's own context, which it may change, and restore that of the thread."""
        outer = CURRENT.get()
        CURRENT.set(self._trace)
        try:
            return self._advance(throw)
        finally:
            self._trace = CURRENT.get()
            CURRENT.set(outer)

    def _end(self, value: Any, error: BaseException | None) -> None:
        self._on_end(self)
        self._complete(value, error)

    def cancel(self) -> None:
        """Cancel the awaited object, then raise Cancelled at the present await. Only in the actor's thread."""
        if self.done():
            return
        awaited = self._awaited
        if awaited is not None:
            awaited.cancel()
        self.step(throw=Cancelled())


def _is_done(awaited: Any) -> bool:
    return bool(awaited.done())


async def gather(*awaitables: Any) -> list[Any]:
    """Wait for all and return their results in order. Raises the first error once all are complete, cancelled ones
    included. A cancellation cancels all."""
    all_done: Future[None] = Future()
    completed = itertools.count(1)
    for awaitable in awaitables:  # the callbacks also mark a failure as handled
        awaitable.add_done_callback(lambda _: all_done.set(None) if next(completed) == len(awaitables) else None)
    if awaitables:
        try:
            await all_done  # once for all: each await is a wake-up
        except Cancelled:
            for other in awaitables:
                other.cancel()
            raise
    results: list[Any] = []
    first_error: Exception | None = None
    for awaitable in awaitables:
        try:
            results.append(awaitable.result(0))
        except Exception as error:
            first_error = first_error or error
            results.append(None)
    if first_error is not None:
        raise first_error
    return results


async def first_of(*awaitables: Any) -> None:
    """Wait until one is complete. The others go on, also when the wait is cancelled."""
    one: Future[None] = Future()
    for awaitable in awaitables:
        awaitable.add_done_callback(lambda _: one.set(None))
    await one


class Semaphore:
    """A counting semaphore with `width` permits, first come first served, for `async with`. Any thread may wait.

    Tasks that wait with `async with semaphore.ahead` get a permit before all others.
    """

    def __init__(self, width: int) -> None:
        self._free = width
        self._lock = threading.RLock()  # a coroutine that garbage collection ends gives its permit back
        self._waiting = _Waiting(self)
        self.ahead = _Waiting(self)

    async def __aenter__(self) -> None:
        await self._waiting.__aenter__()

    async def __aexit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._release()

    def _acquire(self, queue: deque[Future[None]]) -> Future[None]:
        permit: Future[None] = Future()
        with self._lock:
            if self._free > 0:
                self._free -= 1
                permit.set(None)
            else:
                queue.append(permit)
        return permit

    def _release(self) -> None:
        with self._lock:
            if queue := self.ahead.queue or self._waiting.queue:
                next_holder = queue.popleft()
            else:
                self._free += 1
                return
        next_holder.set(None)

    def _withdraw(self, permit: Future[None], queue: deque[Future[None]]) -> None:
        """Give back a permit that its task waits for no more."""
        with self._lock:
            waiting = permit in queue
            if waiting:
                queue.remove(permit)
        if not waiting:
            self._release()


class _Waiting:
    """The tasks of one rank that wait for a semaphore."""

    def __init__(self, semaphore: Semaphore) -> None:
        self._semaphore = semaphore
        self.queue: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        permit = self._semaphore._acquire(self.queue)
        try:
            await permit
        except BaseException:  # also GeneratorExit, when the actor has ended
            self._semaphore._withdraw(permit, self.queue)
            raise

    async def __aexit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._semaphore._release()
