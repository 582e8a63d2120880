"""A few threads for many actors, and the actor that runs on them: `PooledActor`, for actors by the hundred.

A Pykka actor has a thread of its own, which costs some 35 KiB even when it waits. Here an actor has one only while
there is something in its mailbox. What an actor may rely on stays: one message at a time, in order. An actor that
blocks holds up itself alone, because there is one more thread as long as nothing gets its turn.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from actors._base.messaging.mailbox import MailboxActor, Timers

IDLE_THREADS = 2
"""Threads that wait for work; what is above ends once it has nothing to do."""
MOST_THREADS = 128
STALLED_S = 0.05
"""When nothing got its turn for this long although something waits, there is one thread more."""


class ThreadPool:
    """Threads that run what is submitted, first come first served. `submit` from any thread."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0
        self._taken = 0
        self._watched = False

    @property
    def threads(self) -> int:
        """How many there are."""
        return self._threads

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job()` soon. It must not raise."""
        with self._changed:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
            elif self._threads < IDLE_THREADS:
                self._start_thread()
            elif not self._watched:
                self._watch()

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name="pool", daemon=True).start()
        self._threads += 1

    def _watch(self) -> None:
        self._watched = True
        taken = self._taken
        self._timers.call_later(STALLED_S, lambda: self._look(taken))

    def _look(self, taken_before: int) -> None:
        with self._changed:
            self._watched = False
            if not self._jobs:
                return
            if self._taken == taken_before and self._threads < MOST_THREADS:
                with contextlib.suppress(RuntimeError):  # the limit of threads: tried again at the next look
                    self._start_thread()
            self._watch()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._jobs:
                    if self._idle > IDLE_THREADS:
                        self._idle -= 1
                        self._threads -= 1
                        return
                    self._changed.wait()
                self._idle -= 1
                self._taken += 1
                job = self._jobs.popleft()
            job()
            del job  # what it holds may be an actor that is over


class _EmptyError(Exception):
    """The mailbox has nothing: out of Pykka's loop, which lets it pass."""


class Inbox:
    """What Pykka asks of a mailbox, and a call of `wake` when it gets something while nobody reads it."""

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()
        self.wake: Callable[[], None] = lambda: None
        self._read = True  # the actor's first turn is its start
        self._lock = threading.Lock()

    def put(self, envelope: Any, /) -> None:
        """Add a message."""
        with self._lock:
            self.queue.append(envelope)
            if self._read:
                return
            self._read = True
        self.wake()

    def get(self) -> Any:
        """The oldest message; raises when there is none, and the next one will wake."""
        with self._lock:
            if self.queue:
                return self.queue.popleft()
            self._read = False
        raise _EmptyError

    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self.queue

    def qsize(self) -> int:
        """How many wait."""
        return len(self.queue)


class PooledActor(MailboxActor):
    """A MailboxActor without a thread of its own. All of a process share one pool."""

    _pool: ClassVar[ThreadPool | None] = None

    def __init__(self, timers: Timers) -> None:
        super().__init__(timers)
        self.inbox: Inbox = self.actor_inbox  # type: ignore[assignment]  # Pykka types it by two methods
        self.inbox.wake = self._wake_up

    @staticmethod
    def _create_actor_inbox() -> Any:
        return Inbox()

    def _start_actor_loop(self) -> None:
        if PooledActor._pool is None:
            PooledActor._pool = ThreadPool(self.timers)
        PooledActor._pool.submit(self._first_turn)

    def _wake_up(self) -> None:
        assert PooledActor._pool is not None
        PooledActor._pool.submit(self._turn)

    def _first_turn(self) -> None:
        self._actor_loop_setup()
        self._turn()

    def _turn(self) -> None:
        try:
            self._actor_loop_running()
        except _EmptyError:
            return
        self._actor_loop_teardown()
