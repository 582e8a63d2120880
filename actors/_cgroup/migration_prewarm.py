"""Shortens an exec by starting an RCU grace period before the container runtime waits for one.

A write to cgroup.procs takes a lock for writing that every fork and exit takes for reading. The first writer waits for
an RCU grace period: some 12 ms with 250 ticks a second, of the 28 ms that an exec takes. Writers within one more grace
period do not wait (`cgroup_attach_lock` in kernel/cgroup/cgroup.c, `rcu_sync_enter` in kernel/rcu/sync.c).

So this process moves itself into its own cgroup, a move without effect, while the runtime still handles the request.
The mount option favordynmods removes the wait for good; the machine's administrator decides about it.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from actors._cgroup.hierarchy import hierarchy, own_cgroups

log = logging.getLogger(__name__)

EXPECTED_S = 0.02
"""Time in which the move is expected. An idle machine needs 8 ms from the request to an exec's move.

The last write leaves one more grace period for it.
"""
AGAIN_S = 0.006
"""Time between two writes: less than a grace period, so that the effect of the last write still holds."""


class MigrationPrewarm:
    """Moves this process into its own cgroup while a runtime's move is expected.

    Its thread starts with the first call of `expect` and sleeps in between.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def expect(self) -> None:
        """Announce that a runtime is going to move a process. Not thread-safe."""
        self._until = time.monotonic() + EXPECTED_S
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="migration-prewarm", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            try:
                with open(own_procs(), "wb", buffering=0) as procs:
                    while time.monotonic() < self._until:
                        procs.write(b"0")
                        time.sleep(AGAIN_S)
            except OSError as error:
                log.debug("cannot prewarm a cgroup migration: %s", error)


def own_procs(cgroups: str = "/proc/self/cgroup") -> str:
    """Return the cgroup.procs that lists this process, that of v2 first.

    Raises OSError when none is writable, as in a container with read-only cgroup mounts.
    """
    mounts = hierarchy().mounts
    for controller, name in sorted(own_cgroups(cgroups).items()):
        path = f"{mounts.get(controller)}{name.rstrip('/')}/cgroup.procs"
        if controller in mounts and os.access(path, os.W_OK):
            return path
    raise OSError("cannot write to any cgroup.procs of this process")
