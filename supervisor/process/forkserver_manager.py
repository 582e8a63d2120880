"""Keeps one forkserver running: replaces it when it ends, queues requests meanwhile, counts incarnations.

`forkclient` is the interface of a single forkserver process.
"""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import time
from collections.abc import Iterator, Mapping

import zmq

from proto.agent.settings import Settings
from proto.common.backoff import Backoff, BackoffHistory
from proto.common.machine import procfs
from supervisor.process import state
from supervisor.process.forkclient import LOAD_S, ForkClient, Report

log = logging.getLogger(__name__)

STABLE_S = 10.0
"""A forkserver that lived this long is replaced at once; otherwise with back-off."""
END_WAIT_S = 2.0
MOST_LOAD_S = 960.0
"""Longest time for the imports. After a forkserver that exceeds its time its successor has twice as long."""
STOPPED_S = 0.5
"""From a signal that stops it to its replacement. The next death of an actor would wait for it."""


class ForkserverManager:
    """At most one forkserver at a time."""

    def __init__(
        self,
        settings: Settings,
        preload: tuple[str, ...],
        entry: str,
        poller: zmq.Poller,
        incarnation: int,
        *,
        by_fork: bool,
        listeners: tuple[int, ...] = (),
    ) -> None:
        """With `by_fork`, the first forkserver is a fork of this process, see ForkClient."""
        self._settings = settings
        self._preload = preload
        self._entry = entry
        self._by_fork = by_fork
        self._listeners = listeners
        self._poller = poller
        self._backoff = Backoff(initial_s=0.2, factor=2.0, cap_s=10.0, jitter=0.1)
        self._history = BackoffHistory()
        self._start_at: float | None = None
        self._load_s = LOAD_S
        self._waiting: list[tuple[str, int]] = []
        self._client: ForkClient | None = None
        self.incarnation = incarnation
        self.restarts = -1
        """Starts after the first, by this supervisor."""
        self.started = 0.0
        self.gone = False
        """The present forkserver has ended, or must: call `reap`, then `start_when_due`."""
        self._stopped_at: float | None = None
        self._start()

    @property
    def pid(self) -> int:
        """The present forkserver's pid; 0 while there is none."""
        return self._client.pid if self._client is not None else 0

    @property
    def loaded(self) -> bool:
        """True once it has imported everything and forks at once."""
        return self._client is not None and self._client.loaded

    @property
    def idle(self) -> bool:
        """True when it owes no answer."""
        return self.loaded and self._client is not None and not self._client.unanswered

    @property
    def replaced(self) -> bool:
        """True while there is no forkserver and a successor is due."""
        return self._client is None

    def entry(self) -> state.Entry:
        """The forkserver's entry in the state file."""
        return state.Entry(incarnation=self.incarnation, pid=self.pid, start_time=procfs.start_time(self.pid))

    def _start(self) -> None:
        self._start_at = None
        self.incarnation += 1
        self.restarts += 1
        self.started = time.monotonic()
        self.gone = False
        self._stopped_at = None
        by_fork = self._by_fork and self.restarts == 0
        self._client = ForkClient(
            self._settings,
            self._preload,
            self._entry,
            self.started,
            by_fork=by_fork,
            listeners=self._listeners,
            load_s=self._load_s,
        )
        self._poller.register(self._client.fileno(), zmq.POLLIN)
        self._poller.register(self._client.pidfd, zmq.POLLIN)
        waiting, self._waiting = self._waiting, []
        for name, incarnation in waiting:
            self.fork(name, incarnation)

    def fork(self, name: str, incarnation: int) -> None:
        """Request a child, or queue the request until there is a forkserver."""
        if self._client is None:
            self._waiting.append((name, incarnation))
        elif not self._client.fork(name, incarnation, time.monotonic()):
            self.gone = True

    def withdraw(self) -> list[tuple[str, int]]:
        """Take back and return the requests that wait for a forkserver: the agent's end must not wait for one."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def use(self, settings: Settings) -> None:
        """Start every further child with these settings."""
        self._settings = settings
        if self._client is not None and not self._client.use(settings):
            self.gone = True  # its successor starts with these settings

    def is_in(self, ready: Mapping[object, int]) -> bool:
        """True when the poller found input or the forkserver's end."""
        client = self._client
        return client is not None and (client.fileno() in ready or client.pidfd in ready)

    def read(self) -> list[Report]:
        """Read its reports. Sets `gone` at its end, after its last report, or after an unreadable report."""
        if self._client is None:
            return []
        ended = bool(
            select.select([self._client.pidfd], [], [], 0)[0]
        )  # before reading: all it ever sent is there then
        reports = self._client.read(time.monotonic())
        self.gone = ended or reports is None or self._client.unclear
        return reports or []

    def reap(self) -> list[tuple[str, int]]:
        """Kill and reap it, so that its children become ours. Returns the requests that it never answered."""
        client, self._client = self._client, None
        if client is None:
            return []
        if not client.loaded and self.started + self._load_s <= time.monotonic():
            log.warning("the forkserver has not imported everything within %g s: the machine is slow", self._load_s)
            self._load_s = min(2 * self._load_s, MOST_LOAD_S)
        self._poller.unregister(client.fileno())
        self._poller.unregister(client.pidfd)
        _end(client, signal.SIGKILL)
        unanswered = list(client.unanswered)
        client.close()
        now = time.monotonic()
        if now - self.started >= STABLE_S:
            self._history = BackoffHistory()
            self._start_at = now
        else:
            delay_s, self._history = self._backoff.next_delay(self._history, now, random.random)
            self._start_at = now + delay_s
        return unanswered

    def start_when_due(self) -> None:
        """Start the successor if it is time."""
        if self._client is None and self._start_at is not None and time.monotonic() >= self._start_at:
            try:
                self._start()
            except OSError as error:
                log.error("cannot start the forkserver: %s, trying again", error)
                self._client = None
                self._start_at = time.monotonic() + 1.0

    def deadlines(self) -> Iterator[float]:
        """Monotonic times at which the loop must check the forkserver."""
        if self._client is None:
            if self._start_at is not None:
                yield self._start_at
            return
        if self.gone:
            yield 0.0
        yield from self._answer_deadlines()

    def _answer_deadlines(self) -> Iterator[float]:
        deadline = self._client.deadline() if self._client is not None else None
        if deadline is not None:
            yield deadline
        if self._stopped_at is not None:
            yield self._stopped_at + STOPPED_S

    def on_status(self, wait_status: int) -> None:
        """Note that a signal stopped or continued it."""
        self._stopped_at = time.monotonic() if os.WIFSTOPPED(wait_status) else None

    def overdue(self) -> bool:
        """True when an answer is past its deadline, or it stays stopped: it must be replaced."""
        return self._client is not None and any(time.monotonic() >= at for at in self._answer_deadlines())

    def close(self) -> None:
        """End the forkserver and wait for its end."""
        if self._client is not None:
            _end(self._client, signal.SIGTERM)
            self._client.close()
            self._client = None


def _end(client: ForkClient, number: signal.Signals) -> None:
    for attempt in (number, signal.SIGKILL):
        try:
            signal.pidfd_send_signal(client.pidfd, attempt)
        except ProcessLookupError:
            break
        if select.select([client.pidfd], [], [], END_WAIT_S)[0]:
            break
    try:
        os.waitpid(client.pid, os.WNOHANG)
    except ChildProcessError:
        return  # reaped already
