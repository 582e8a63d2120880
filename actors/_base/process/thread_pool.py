"""A pool of a few threads, and `PooledActor`, a Pykka actor that runs on them: for hundreds of actors in a process.

A Pykka actor's own thread takes some 35 KiB even when it waits. A pooled actor has a thread only while its mailbox has
messages. It still handles one message at a time, in order. An actor that blocks delays no other for long: the pool adds
a thread when waiting jobs do not start.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from actors._base.messaging.mailbox import Inbox, MailboxActor, Timers

IDLE_THREADS = 2
"""Idle threads that stay; further threads end when they are idle."""
MAX_THREADS = 128
STALLED_S = 0.05
"""The pool adds a thread when no waiting job started for this long."""


class ThreadPool:
    """Threads that run submitted jobs, first come first served. Call `submit` from any thread."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0
        self._jobs_started = 0
        self._watched = False

    @property
    def threads(self) -> int:
        """The number of threads."""
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
        started = self._jobs_started
        self._timers.call_later(STALLED_S, lambda: self._add_thread_if_stalled(started))

    def _add_thread_if_stalled(self, started_before: int) -> None:
        with self._changed:
            self._watched = False
            if not self._jobs:
                return
            if self._jobs_started == started_before and self._threads < MAX_THREADS:
                with contextlib.suppress(RuntimeError):  # the limit of threads: the next check tries again
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
                self._jobs_started += 1
                job = self._jobs.popleft()
            job()
            del job  # it may hold an actor that has stopped


class _EmptyError(Exception):
    """The mailbox is empty. It leaves Pykka's loop, which does not catch it."""


class PooledInbox(Inbox):
    """A mailbox that calls `wake` when a message arrives while no thread reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.wake: Callable[[], None] = lambda: None
        self._read = True  # the actor's start reads it first
        self._lock = threading.Lock()

    def put(self, envelope: Any, /) -> None:
        """Append a message."""
        with self._lock:
            self.waiting.append(envelope)
            if self._read:
                return
            self._read = True
        self.wake()

    def get(self) -> Any:
        """Remove the oldest message. When there is none, raises, and the next message calls `wake`."""
        with self._lock:
            if self.waiting:
                return self.waiting.popleft()
            self._read = False
        raise _EmptyError


class PooledActor(MailboxActor):
    """A MailboxActor without a thread of its own. All in a process share one pool."""

    _pool: ClassVar[ThreadPool | None] = None
    inbox: PooledInbox

    def __init__(self, timers: Timers) -> None:
        super().__init__(timers)
        self.inbox.wake = self._wake_up

    @staticmethod
    def _create_actor_inbox() -> Any:
        return PooledInbox()

    def _start_actor_loop(self) -> None:
        if PooledActor._pool is None:
            PooledActor._pool = ThreadPool(self.timers)
        PooledActor._pool.submit(self._run_first)

    def _wake_up(self) -> None:
        assert PooledActor._pool is not None
        PooledActor._pool.submit(self._run_messages)

    def _run_first(self) -> None:
        self._actor_loop_setup()
        self._run_messages()

    def _run_messages(self) -> None:
        try:
            self._actor_loop_running()
        except _EmptyError:
            return
        self._actor_loop_teardown()
