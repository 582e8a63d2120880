"""The cgroup that instances of a runtime share, for pods without a parent: `k8s.io` or `nodevisor` at the top.

The instance that ends last deletes it. Another one may be making a container's cgroup there. A file of a cgroup that
goes away fails with ENODEV, and the container does not start.
"""

import contextlib
import fcntl
import os

from tests.containerd.host import leftovers

CONTAINERD, EMBEDDED = "k8s.io", "nodevisor"
_PLACES = {CONTAINERD: "/sys/fs", EMBEDDED: "/sys/fs/cgroup"}
"""Directories that instances hold a shared flock of. The kernel drops it with their process."""


class SharedCgroup:
    """Held by one instance while it runs."""

    def __init__(self, name: str) -> None:
        """Waits while another process deletes it."""
        self._name = name
        self._held = os.open(_PLACES[name], os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_SH)

    def close(self) -> None:
        """Delete the cgroup if it is empty and this instance is the last."""
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftovers.delete_empty_cgroups(self._name)
        finally:
            os.close(self._held)
