"""Shortens execs and starts by beginning an RCU grace period before the container runtime waits for one.

A write to cgroup.procs takes a lock for writing that every fork and exit takes for reading. The first writer waits for
an RCU grace period: some 12 ms with 250 ticks a second, of the 28 ms that an exec takes. Writers within one more grace
period do not wait (`cgroup_attach_lock` in kernel/cgroup/cgroup.c, `rcu_sync_enter` in kernel/rcu/sync.c). Bare CRI
calls that start a pod take 90 ms instead of 111.

So this process moves itself into its own cgroup, a move without effect, while the runtime still handles the request.
The mount option favordynmods removes the wait for good; the machine's administrator decides about it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from actors._cgroup.hierarchy import hierarchy, own_cgroups

log = logging.getLogger(__name__)

EXPECTED_S = 0.02
"""Time in which the move is expected. An idle machine needs 8 ms from the request to an exec's move.

The last write leaves one more grace period for it.
"""
AGAIN_S = 0.006
"""Time between two writes: less than a grace period, so that the effect of the last write still holds."""
CALL_S = 0.2
"""Time from the begin of a call in which its move is expected. RunPodSandbox runs network plugins before it."""
MOST_CALLS = 2
"""With more calls under way the runtime's own moves follow each other: ten starts at once gain 2 %."""
IDLE_S = 10.0
"""Time without an expected move after which the thread ends."""
OWN_CGROUPS = "/proc/self/cgroup"
MOST_BYTES = 16384
"""Of `OWN_CGROUPS` to compare."""


class MigrationPrewarm:
    """Moves this process into its own cgroup while a runtime's move is expected. Safe from any thread.

    A failure costs time only: no error leaves this object. Its thread starts with an expectation, and ends after
    `IDLE_S` without one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._calls: dict[object, float] = {}
        """Calls under way, with the times until which their moves are expected."""
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def expect(self) -> None:
        """Announce that a runtime is going to move a process."""
        with self._lock:
            self._until = time.monotonic() + EXPECTED_S
            self._wake()

    @contextmanager
    def during_call(self) -> Iterator[None]:
        """Expect a move as long as the block runs, `CALL_S` at most, unless more than `MOST_CALLS` blocks run."""
        call = object()
        try:
            with self._lock:
                self._calls[call] = time.monotonic() + CALL_S
                if len(self._calls) <= MOST_CALLS:
                    self._wake()
            yield
        finally:
            with self._lock:
                self._calls.pop(call, None)

    def _wake(self) -> None:
        """Wake the thread, or start it. The caller holds the lock."""
        self._wanted.set()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="migration-prewarm", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the machine or the cgroup has no room for a thread
                log.debug("cannot prewarm a cgroup migration: %s", error)
                return
            self._thread = thread

    def _is_expected(self) -> bool:
        with self._lock:
            calls = self._calls.values() if len(self._calls) <= MOST_CALLS else ()
            return time.monotonic() < max(self._until, *calls, 0.0)

    def _run(self) -> None:
        while self._is_wanted():
            try:
                while self._is_expected():
                    self._move()
            except Exception as error:  # also a cgroup with an odd name; the calls go on without it
                log.debug("cannot prewarm a cgroup migration: %s", error)

    def _is_wanted(self) -> bool:
        """Wait for an expectation. False: there was none for `IDLE_S`, and the thread ends."""
        if not self._wanted.wait(IDLE_S):
            with self._lock:
                if not self._wanted.is_set():
                    self._thread = None
                    return False
        self._wanted.clear()
        return True

    def _move(self) -> None:
        """Write to the own cgroup.procs as long as a move is expected and an administrator moves this process nowhere.

        A write to the former cgroup would move it back.
        """
        with open(OWN_CGROUPS, "rb", buffering=0) as own:
            before = os.pread(own.fileno(), MOST_BYTES, 0)
            with open(own_procs(), "wb", buffering=0) as procs:
                while self._is_expected() and os.pread(own.fileno(), MOST_BYTES, 0) == before:
                    procs.write(b"0")
                    time.sleep(AGAIN_S)


def own_procs(cgroups: str = OWN_CGROUPS) -> str:
    """Return the cgroup.procs that lists this process, that of v2 first.

    Raises OSError when none is writable, as in a container with read-only cgroup mounts.
    """
    mounts = hierarchy().mounts
    for controller, name in sorted(own_cgroups(cgroups).items()):
        path = f"{mounts.get(controller)}{name.rstrip('/')}/cgroup.procs"
        if controller in mounts and os.access(path, os.W_OK):
            return path
    raise OSError("cannot write to any cgroup.procs of this process")
