"""The cgroups that instances of a runtime share, for pods without a parent: `k8s.io` and `nodevisor` at the top.

The instance that ends last deletes them. Another one may be making a container's cgroup there. A file of a cgroup that
goes away fails with ENODEV, and the container does not start.
"""

import contextlib
import fcntl
import os

from tests.containerd import leftovers

SHARED = ("k8s.io", "nodevisor")
_PLACE = "/sys/fs/cgroup"
"""Instances hold a shared flock of this directory. The kernel drops it with their process."""


class SharedCgroups:
    """Held by one instance while it runs."""

    def __init__(self) -> None:
        """Waits while another process deletes them."""
        self._held = os.open(_PLACE, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_SH)

    def close(self) -> None:
        """Delete the empty ones, if this instance is the last."""
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for name in SHARED:
                    leftovers.delete_empty_cgroups(name)
        finally:
            os.close(self._held)
