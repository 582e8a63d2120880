"""A Pykka actor with coroutines and timers: the base class of process actors and pod workers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

import pykka

from actors._base.messaging.futures import Future
from actors._base.messaging.loop import Loop
from actors._base.messaging.tasks import Task

T = TypeVar("T")


class TimerHandle(Protocol):
    """A timer that is set."""

    def cancel(self) -> None:
        """Keep the timer from firing. No effect after it has fired."""


class Timers(Protocol):
    """Runs timers: the I/O loop of the process."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call from the I/O thread in `delay_s` seconds. The callback must not block."""


class Call(NamedTuple):
    """A function to run in the actor's thread, as a message."""

    function: Callable[..., object]
    args: tuple[Any, ...]
    name: str


class Inbox:
    """A Pykka mailbox that others can read while its thread hangs.

    The thread of a process's actor waits at the loop while it has no message, and may lead it. Others, in tests, wait
    for messages alone.
    """

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self._loop: Loop | None = None
        self._waits = False
        """True while the thread waits at the loop."""
        self._arrived: SimpleQueue[None] = SimpleQueue()
        """An entry for each waiting message, without a loop."""

    def attach(self, loop: Loop) -> None:
        """Wait at this loop. Before the first message."""
        self._loop, loop.mailbox_waits = loop, lambda: self._waits and bool(self.waiting)

    def put(self, envelope: Any, /) -> None:
        """Append a message. From any thread."""
        self.waiting.append(envelope)
        if self._loop is None:
            self._arrived.put(None)
        elif self._waits:
            self._loop.wake()

    def get(self) -> Any:
        """Remove the oldest message, or wait for one. In the actor's thread."""
        if (loop := self._loop) is None:
            self._arrived.get()
        else:
            loop.look()
            while not self.waiting:
                self._lead(loop)
                loop.look()  # sends of a callback put theirs off, too
        return self.waiting.popleft()

    def _lead(self, loop: Loop) -> None:
        if loop.ended:  # the process ends: the main thread leads alone
            self._arrived.get()
        loop.mailbox_thread = threading.get_ident()
        self._waits = True
        if self.waiting:  # it came before; a message from here on ends the wait
            self._waits = False
            return
        events = loop.wait()
        self._waits = False
        loop.has_woken()
        loop.lead(events)

    def empty(self) -> bool:
        """True without waiting messages."""
        return not self.waiting

    def qsize(self) -> int:
        """The number of waiting messages."""
        return len(self.waiting)


class Sleep(Future[None]):
    """A pause; cancelling it stops its timer."""

    __slots__ = ("handle",)
    handle: TimerHandle

    def cancel(self) -> None:
        self.handle.cancel()


class MailboxActor(pykka.ThreadingActor):
    """One mailbox, one thread, any number of coroutines between the messages.

    Methods run in the actor's thread unless their docstring differs. An exception in a coroutine that is not awaited
    ends the actor, as Pykka does for `tell`.
    """

    use_daemon_thread = True

    def __init__(self, timers: Timers) -> None:
        super().__init__()
        self.inbox: Inbox = self.actor_inbox  # type: ignore[assignment]  # Pykka types it by two methods
        self.timers = timers
        self.tasks: set[Task[Any]] = set()
        self.in_flight: tuple[str, float] | None = None
        """Name and monotonic start of the present message; the I/O thread reads it for evidence."""

    @staticmethod
    def _create_actor_inbox() -> Any:
        return Inbox()

    def on_receive(self, message: Any) -> Any:
        """Run one message: a `Call` here, any other in `receive`."""
        if isinstance(message, Call):
            self.in_flight = (message.name, time.monotonic())
            try:
                message.function(*message.args)
            finally:
                self.in_flight = None
            return None
        return self.receive(message)

    def receive(self, message: Any) -> Any:
        """Handle a message other than a `Call`. Subclasses override it."""
        raise TypeError(f"{type(self).__name__} takes no {type(message).__name__}")

    def mailbox_depth(self) -> int:
        """The number of waiting messages."""
        return self.inbox.qsize()

    def mailbox_head(self, count: int) -> list[Any]:
        """The oldest waiting messages."""
        return list(self.inbox.waiting.copy())[:count]

    def post(self, function: Callable[..., object], *args: Any, name: str = "") -> None:
        """Queue `function(*args)` for the actor's thread. From any thread; dropped once the actor has stopped."""
        try:
            self.actor_ref.tell(Call(function, args, name or getattr(function, "__name__", "call")))
        except pykka.ActorDeadError:
            return

    def spawn(self, coroutine: Coroutine[Any, None, T], name: str = "") -> Task[T]:
        """Start a coroutine now, in the actor's thread; it runs to its first await before this returns."""
        task: Task[T] = Task(
            coroutine,
            name or getattr(coroutine, "__qualname__", "coroutine"),
            resume=self._resume,
            unhandled=self._unhandled,
            on_end=self.tasks.discard,
        )
        self.tasks.add(task)
        task.step()
        return task

    def _resume(self, task: Task[Any]) -> None:
        self.post(task.step, name=task.name)

    def _unhandled(self, task: Task[Any], error: BaseException) -> None:
        # A task that fails before its first await ends before its spawner can await it: check again after this message.
        self.post(self._crash_if_unhandled, task, error)

    def _crash_if_unhandled(self, task: Task[Any], error: BaseException) -> None:
        if not task.followed:
            self.crash(error)

    def crash(self, error: BaseException) -> None:
        """Raise the exception of a coroutine that is not awaited. As in a handler, it ends the actor."""
        raise error

    def sleep(self, seconds: float) -> Sleep:
        """Return an awaitable that completes after at least `seconds`."""
        pause = Sleep()
        pause.handle = self.timers.call_later(max(0.0, seconds), lambda: pause.set(None))
        return pause

    def after(self, delay_s: float, function: Callable[..., object], *args: Any) -> TimerHandle:
        """Run `function(*args)` in the actor's thread in `delay_s` seconds."""
        return self.timers.call_later(delay_s, lambda: self.post(function, *args))
