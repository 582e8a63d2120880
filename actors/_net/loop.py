"""The server's event loop: coroutines that wait for sockets, in one thread, whatever their number.

The coroutines are those of `actors._base.messaging.tasks`: they await a peer's answer like anything else here. Not
asyncio: its TLS keeps 281 KB for each idle connection where this has 16 KB, and its import is 4 MB.
"""

from __future__ import annotations

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
LONG_A_TURN = 8
"""Long steps, half a millisecond each, between two looks at the sockets: what is short waits for so many at most."""

_Waits: TypeAlias = "list[Readiness | None]"
"""Who waits to read a descriptor, and who to write it."""


class Readiness(Future[None]):
    """A wait for a descriptor; cancelling it takes the descriptor out of the loop."""

    __slots__ = ("fd", "loop")

    def __init__(self, loop: Loop, fd: int) -> None:
        super().__init__()
        self.loop = loop
        self.fd = fd

    def cancel(self) -> None:
        """Do not watch the descriptor any more."""
        self.loop.forget(self)


class Loop:
    """Everything runs in its thread but `call`, `call_later` and `stop`, which come from any."""

    def __init__(self) -> None:
        self.tasks: set[Task[Any]] = set()
        self._epoll = select.epoll()
        self._waits: dict[int, _Waits] = {}
        self._thread = 0
        self._calls: deque[Callable[[], object]] = deque()
        self._line: deque[Future[None]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._timers = TimerHeap(self._wake)
        self._stopped = False
        self._woken = False
        self._crashed: Callable[[BaseException], None] = _log_crash

    # From any thread

    def call(self, function: Callable[[], object]) -> None:
        """Run it in the loop's thread, soon."""
        self._calls.append(function)
        if threading.get_ident() != self._thread:  # the loop itself looks before it waits
            self._wake()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Run it in the loop's thread in `delay_s` seconds."""
        return self._timers.add(delay_s, callback)

    def stop(self) -> None:
        """End `run`; the coroutines are cancelled first."""

        def end() -> None:
            for task in list(self.tasks):
                task.cancel()
            self._stopped = True

        self.call(end)

    def start(self, crashed: Callable[[BaseException], None]) -> None:
        """Run in a thread of its own; `crashed` is told of an exception that nobody awaits."""
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
        # One that fails before its first await is over before its spawner can follow it: look again a little later.
        self.call(lambda: None if task.followed else self._crashed(error))

    def sleep(self, seconds: float) -> Sleep:
        """`await loop.sleep(s)`: at least that long."""
        pause = Sleep()
        pause.handle = self.call_later(max(0.0, seconds), lambda: pause.set(None))
        return pause

    def in_line(self) -> Future[None]:
        """`await loop.in_line()` before a step that takes long: these have their turns, a few at a time, and what is
        short comes between."""
        turn: Future[None] = Future()
        self._line.append(turn)
        return turn

    def readable(self, fd: int) -> Readiness:
        """Until there is something to read; one waiter for a descriptor."""
        return self._wait(fd, 0)

    def writable(self, fd: int) -> Readiness:
        """Until there is room to write; one waiter for a descriptor."""
        return self._wait(fd, 1)

    def _wait(self, fd: int, side: int) -> Readiness:
        wait = Readiness(self, fd)
        waits = self._waits.get(fd)
        if waits is None:
            waits = self._waits[fd] = [None, None]
        assert waits[side] is None, f"two wait for descriptor {fd}"
        waits[side] = wait
        self._arm(fd, waits)
        return wait

    def _arm(self, fd: int, waits: _Waits) -> None:
        """For one event: the next wait is one call, and nobody's events wake no one."""
        reading, writing = waits
        mask = select.EPOLLONESHOT
        if reading is not None:
            mask |= select.EPOLLIN | select.EPOLLRDHUP
        if writing is not None:
            mask |= select.EPOLLOUT
        try:
            self._epoll.modify(fd, mask)
        except FileNotFoundError:  # new, or another one of that number: closing takes a descriptor out
            self._epoll.register(fd, mask)

    def forget(self, wait: Readiness) -> None:
        """Nobody waits for it any more. An event that still comes for it is nobody's."""
        waits = self._waits.get(wait.fd)
        if waits is not None and wait in waits:
            waits[waits.index(wait)] = None
            if waits == [None, None]:
                del self._waits[wait.fd]

    # The loop

    def run(self) -> None:
        """Until `stop`."""
        self._thread = threading.get_ident()
        try:
            while not self._stopped:
                self._turn()
        except BaseException as error:
            self._crashed(error)

    def _turn(self) -> None:
        wait_s = self._timers.run_due()
        timeout = 0.0 if self._calls or self._line else -1 if wait_s is None else wait_s
        for fd, events in self._epoll.poll(timeout, EVENTS_AT_ONCE):
            if fd == self._wake_fd:
                os.eventfd_read(fd)
                self._woken = False  # before the calls are taken: one added from here on wakes again
            else:
                self._happened(fd, events)
        for _ in range(min(len(self._line), LONG_A_TURN)):
            self._line.popleft().set(None)
        for _ in range(len(self._calls)):  # what these add comes after the sockets have had their turn
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
    log.critical("the server's loop ended", exc_info=error)
