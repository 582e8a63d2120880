"""A pool of threads, and `PooledActor`, a Pykka actor that runs on one: for hundreds of actors in a process.

A Pykka actor's own thread takes some 35 KiB even when it waits. A pooled actor has a thread only while its mailbox has
messages. It still handles one message at a time, in order. An actor that blocks for long delays the others for
STALLED_S: the pool adds a thread when waiting jobs do not start.

The pool of concurrent.futures wakes two threads for each job: its queue wakes another when a thread takes the job. This
pool hands a job to one idle thread, so an idle node's agent wakes less often.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from actors._base.messaging.mailbox import Inbox, MailboxActor, Timers

log = logging.getLogger(__name__)

ACTOR_THREADS = 1
"""Threads of all pooled actors while none of them blocks."""
MOST_ACTOR_THREADS = 128
STALLED_S = 0.05
"""The pool adds a thread when no waiting job started for this long."""

Job = Callable[[], None]


class _Idle:
    """An idle thread's place to wait for its next job."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._given = threading.Lock()
        self._given.acquire()

    def give(self, job: Job | None) -> None:
        self._job = job
        self._given.release()

    def wait(self) -> Job | None:
        self._given.acquire()
        job, self._job = self._job, None
        return job


class ThreadPool:
    """Threads that run submitted jobs, first come first served. Call `submit` and `close` from any thread.

    The idle thread that worked last gets the next job, so that its stack and caches are warm.
    """

    def __init__(self, timers: Timers, name: str, threads: int, most: int = 0) -> None:
        """`threads` start as jobs need them, and stay. With a greater `most`, further ones start when waiting jobs are
        stalled, and end when they are idle. `name` is the threads' name."""
        self._timers = timers
        self._name = name
        self._steady, self._most = threads, max(threads, most)
        self._lock = threading.RLock()  # garbage that is collected meanwhile may end a coroutine, which submits
        self._jobs: deque[Job] = deque()
        self._idle: list[_Idle] = []
        self._threads = 0
        self._started = 0
        """Threads that were ever started."""
        self._jobs_started = 0
        self._watched = False
        self._closed = False

    @property
    def threads(self) -> int:
        """The number of threads."""
        return self._threads

    def submit(self, job: Job) -> None:
        """Run `job()` soon. Its exception is logged. Raises RuntimeError after `close`, and when the machine has no
        thread for the pool's first job."""
        with self._lock:
            if self._closed:
                raise RuntimeError(f"cannot submit a job to the pool {self._name!r}: it is closed")
            if self._idle:
                self._jobs_started += 1
                self._idle.pop().give(job)
                return
            self._jobs.append(job)
            if self._threads >= self._steady:
                self._watch()
            elif not self._start_thread():
                if not self._threads:
                    self._jobs.clear()
                    raise RuntimeError(f"cannot start a thread for the pool {self._name!r}: the machine has no more")
                self._watch()

    def close(self) -> None:
        """Drop waiting jobs and end the threads, each after its present job. A pool that is not closed keeps them."""
        with self._lock:
            self._closed = True
            self._jobs.clear()
            self._threads -= len(self._idle)
            while self._idle:
                self._idle.pop().give(None)

    def _start_thread(self) -> bool:
        """False when the machine's or this process's limit of threads is reached."""
        name = f"{self._name}-{self._started}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError:
            return False
        self._started += 1
        self._threads += 1
        return True

    def _watch(self) -> None:
        """Look later whether jobs start, unless there are as many threads as may be."""
        if not self._watched and self._threads < self._most:
            self._watched = True
            started = self._jobs_started
            self._timers.call_later(STALLED_S, lambda: self._add_thread_if_stalled(started))

    def _add_thread_if_stalled(self, started_before: int) -> None:
        with self._lock:
            self._watched = False
            if not self._jobs:
                return
            if self._jobs_started == started_before and self._threads < self._most:
                self._start_thread()
            self._watch()

    def _work(self) -> None:
        place = _Idle()
        while (job := self._next(place)) is not None:
            try:
                job()
            except BaseException:  # with a thread fewer, later jobs would wait for ever
                log.exception("a job of the pool %s failed", self._name)
            del job  # it may hold an actor that has stopped

    def _next(self, place: _Idle) -> Job | None:
        """Take the oldest waiting job, or wait for one; None when the thread has to end."""
        with self._lock:
            if self._jobs:
                self._jobs_started += 1
                return self._jobs.popleft()
            if self._closed or len(self._idle) >= self._steady:
                self._threads -= 1
                return None
            self._idle.append(place)
        return place.wait()


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
            PooledActor._pool = ThreadPool(self.timers, "pool", ACTOR_THREADS, MOST_ACTOR_THREADS)
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
