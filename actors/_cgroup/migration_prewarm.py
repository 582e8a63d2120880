"""What a runtime waits for when it moves a process between cgroups is begun before it comes to that.

Every write to a cgroup.procs takes, for writing, a lock that all forks and exits of the machine take for reading. Their
side costs next to nothing as long as nobody writes; so the first writer waits until every CPU knows of it, a grace
period of RCU: some 12 ms on a machine with 250 ticks a second, of the 28 that an exec takes. Who comes within another
grace period after that does not wait (`cgroup_attach_lock` in kernel/cgroup/cgroup.c, `rcu_sync_enter` in
kernel/rcu/sync.c). The mount option favordynmods has it so for good, which is for whoever owns the machine to say.

A process of ours that is moved to where it is already begins the same, while the runtime is still asked.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from actors._cgroup.hierarchy import hierarchy, own_cgroups

log = logging.getLogger(__name__)

EXPECTED_S = 0.02
"""From the request to an exec's move it takes 8 ms on a machine at rest; after the last write there is another grace
period's time for it."""
AGAIN_S = 0.006
"""Less than a grace period, for the next writer to find the last one's still going on."""


class MigrationPrewarm:
    """One thread, begun with the first move that is expected, and asleep while none is."""

    def __init__(self) -> None:
        self._until = 0.0
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def expect(self) -> None:
        """A runtime is going to move a process. From one thread."""
        self._until = time.monotonic() + EXPECTED_S
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="moves", daemon=True)
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
                log.debug("the runtime waits for the kernel itself: %s", error)


def own_procs(cgroups: str = "/proc/self/cgroup") -> str:
    """The cgroup.procs that this process is listed in, v2's where there is one. Raises OSError where none can be
    written, as in a container that has cgroups mounted read-only."""
    mounts = hierarchy().mounts
    for controller, name in sorted(own_cgroups(cgroups).items()):
        path = f"{mounts.get(controller)}{name.rstrip('/')}/cgroup.procs"
        if controller in mounts and os.access(path, os.W_OK):
            return path
    raise OSError("none of its cgroups can be written to")
