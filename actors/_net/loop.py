"""An event loop for coroutines that wait for sockets, in one thread.

It runs the coroutines of `actors._base.messaging.tasks`, which can await the answers of peers. It is not asyncio,
whose TLS takes 281 KB for an idle connection where this takes 16 KB, and whose import takes 4 MB.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from actors._base.messaging.futures import Future
from actors._base.messaging.mailbox import Sleep
from actors._base.messaging.tasks import Task
from actors._base.messaging.timers import Timer, TimerHeap

T = TypeVar("T")
log = logging.getLogger(__name__)

EVENTS_AT_ONCE = 256
LONG_STEPS_AT_ONCE = 8
"""Long steps, half a millisecond each, between two polls of the sockets. Short steps wait for at most this many."""

_Waits: TypeAlias = "list[Readiness | None]"
"""The wait to read a descriptor, and the wait to write it."""


class Readiness(Future[None]):
    """A wait for a descriptor; cancelling it takes the descriptor out of the loop."""

    __slots__ = ("fd", "loop")

    def __init__(self, loop: Loop, fd: int) -> None:
        super().__init__()
        self.loop = loop
        self.fd = fd

    def cancel(self) -> None:
        """Stop watching the descriptor."""
        self.loop.forget(self)


class Loop:
    """Runs coroutines and callbacks in its thread. `call`, `call_later` and `stop` may be called from any thread."""

    def __init__(self) -> None:
        self.tasks: set[Task[Any]] = set()
        self._epoll = select.epoll()
        self._waits: dict[int, _Waits] = {}
        self._thread = 0
        self._calls: deque[Callable[[], object]] = deque()
        self._long_steps: deque[Future[None]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._timers = TimerHeap(self._wake)
        self._stopped = False
        self._woken = False
        self._crashed: Callable[[BaseException], None] = _log_crash

    # From any thread

    def call(self, function: Callable[[], object]) -> None:
        """Run the function in the loop's thread, soon."""
        self._calls.append(function)
        if threading.get_ident() != self._thread:  # in the loop's own thread the calls are checked before the next wait
            self._wake()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Run the callback in the loop's thread in `delay_s` seconds."""
        return self._timers.add(delay_s, callback)

    def stop(self) -> None:
        """Cancel the coroutines, then end `run`."""

        def end() -> None:
            for task in list(self.tasks):
                task.cancel()
            self._stopped = True

        self.call(end)

    def start(self, crashed: Callable[[BaseException], None]) -> None:
        """Run in a new thread. `crashed` gets an exception of a coroutine that no other awaits."""
        self._crashed = crashed
        threading.Thread(target=self.run, name="server", daemon=True).start()

    # Coroutines

    def spawn(self, coroutine: Coroutine[Any, None, T], name: str = "") -> Task[T]:
        """Start a coroutine now; it runs to its first await before this returns."""
        task: Task[T] = Task(
            coroutine,
            name or getattr(coroutine, "__qualname__", "coroutine"),
            resume=lambda task: self.call(task.step),
            unhandled=self._unhandled,
            on_end=self.tasks.discard,
        )
        self.tasks.add(task)
        task.step()
        return task

    def _unhandled(self, task: Task[Any], error: BaseException) -> None:
        # A task that fails before its first await ends before its spawner can await it: check once more later.
        self.call(lambda: None if task.followed else self._crashed(error))

    def sleep(self, seconds: float) -> Sleep:
        """`await loop.sleep(s)`: at least that long."""
        pause = Sleep()
        pause.handle = self.call_later(max(0.0, seconds), lambda: pause.set(None))
        return pause

    def before_long_step(self) -> Future[None]:
        """Await this before a step that takes long. Few long steps run between two polls, so short steps stay quick."""
        start: Future[None] = Future()
        self._long_steps.append(start)
        return start

    def readable(self, fd: int) -> Readiness:
        """Wait until the descriptor is readable. One waiter a descriptor: a second one gets an OSError."""
        return self._wait(fd, 0)

    def writable(self, fd: int) -> Readiness:
        """Wait until the descriptor is writable. One waiter a descriptor: a second one gets an OSError."""
        return self._wait(fd, 1)

    def _wait(self, fd: int, side: int) -> Readiness:
        wait = Readiness(self, fd)
        waits = self._waits.get(fd)
        if waits is None:
            waits = self._waits[fd] = [None, None]
        if waits[side] is not None:  # a TLS client can cause it: then a write waits to read, beside the reader
            raise OSError(errno.EBUSY, f"cannot wait to {('read', 'write')[side]} descriptor {fd}: another task does")
        waits[side] = wait
        self._arm(fd, waits)
        return wait

    def _arm(self, fd: int, waits: _Waits) -> None:
        """Register one-shot: a descriptor without a waiter causes no wake-up."""
        reading, writing = waits
        mask = select.EPOLLONESHOT
        if reading is not None:
            mask |= select.EPOLLIN | select.EPOLLRDHUP
        if writing is not None:
            mask |= select.EPOLLOUT
        try:
            self._epoll.modify(fd, mask)
        except FileNotFoundError:  # new: closing a descriptor has removed its number
            self._epoll.register(fd, mask)

    def forget(self, wait: Readiness) -> None:
        """Drop a wait. A late event for it is ignored."""
        waits = self._waits.get(wait.fd)
        if waits is not None and wait in waits:
            waits[waits.index(wait)] = None
            if waits == [None, None]:
                del self._waits[wait.fd]

    # The loop

    def run(self) -> None:
        """Run until `stop`."""
        self._thread = threading.get_ident()
        try:
            while not self._stopped:
                self._run_once()
        except BaseException as error:
            self._crashed(error)

    def _run_once(self) -> None:
        wait_s = self._timers.run_due()
        timeout = 0.0 if self._calls or self._long_steps else -1 if wait_s is None else wait_s
        for fd, events in self._epoll.poll(timeout, EVENTS_AT_ONCE):
            if fd == self._wake_fd:
                os.eventfd_read(fd)
                self._woken = False  # before the calls are taken: one added from here on wakes again
            else:
                self._happened(fd, events)
        for _ in range(min(len(self._long_steps), LONG_STEPS_AT_ONCE)):
            self._long_steps.popleft().set(None)
        for _ in range(len(self._calls)):  # calls that these add run after the next poll
            self._calls.popleft()()

    def _happened(self, fd: int, events: int) -> None:
        waits = self._waits.pop(fd, None)
        if waits is None:
            return
        if events & (select.EPOLLHUP | select.EPOLLERR):
            events |= select.EPOLLIN | select.EPOLLOUT
        fired = [
            wait
            for wait, mask in zip(waits, (select.EPOLLIN | select.EPOLLRDHUP, select.EPOLLOUT), strict=True)
            if wait is not None and events & mask
        ]
        left: _Waits = [None if wait in fired else wait for wait in waits]
        if left != [None, None]:
            self._waits[fd] = left
            self._arm(fd, left)
        for wait in fired:
            wait.set(None)

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            os.eventfd_write(self._wake_fd, 1)


def _log_crash(error: BaseException) -> None:
    log.critical("an exception that no task awaits ended the event loop", exc_info=error)
