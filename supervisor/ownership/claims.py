"""Takes exclusive locks on everything that an agent owns. The kernel releases them when the process ends.

A lock is flock(2) on an open directory. It belongs to the inode: bind mounts, symbolic links, mount namespaces and
cgroup namespaces lead to the same lock, also in cgroupfs of both versions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from supervisor.ownership.places import Place
from supervisor.ownership.processes import inode_of

log = logging.getLogger(__name__)

WAIT_S = 0.4
"""An agent that ends releases its --lock-file, or answers `supervisor stop`, shortly before it releases its claims."""
_POLL_S = 0.02
LOCK_FILE = ".nodevisor.lock"
"""The locked file where the file system, such as NFS, locks only files that are open for writing."""
_NEEDS_A_FILE = (errno.EBADF, errno.EOPNOTSUPP, errno.ENOLCK)


class Claim(NamedTuple):
    """A place that is ours for as long as `descriptor` is open."""

    place: Place
    descriptor: int


class Claims:
    """The locks of one start: `taken` are ours, `refused` are places that another process has locked."""

    def __init__(self) -> None:
        self.taken: list[Claim] = []
        self.refused: list[Place] = []
        self._made: list[str] = []

    def take(self, places: Iterable[Place]) -> None:
        """Lock every place, waiting `WAIT_S` in all. A place that cannot be made or opened is logged and skipped."""
        deadline = time.monotonic() + WAIT_S
        for place in places:
            try:
                while not self._taken(place, deadline):
                    log.debug("%s was removed meanwhile", place.path)
            except OSError as error:
                log.info("cannot claim %s: %s", place.path, error.strerror)

    def _taken(self, place: Place, deadline: float) -> bool:
        """Lock a place. False if the directory was removed before it was locked. Raises OSError."""
        self._make(place)
        descriptor = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = inode_of(descriptor)
        if any(inode_of(claim.place.path) == found for claim in self.taken):  # one directory for two purposes
            os.close(descriptor)
            return True
        try:
            descriptor = _lockable(descriptor, place)
            ours = _lock(descriptor, deadline)
        except OSError:
            os.close(descriptor)
            raise
        if ours and inode_of(place.path) == found:
            self.taken.append(Claim(place, descriptor))
            return True
        os.close(descriptor)
        if not ours:
            self.refused.append(place)
        return not ours

    def _make(self, place: Place) -> None:
        """Make the directory and its parents, with the same modes as the actors do."""
        missing = []
        path = os.path.abspath(place.path)
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another start has just made it
                os.mkdir(path, 0o750 if place.option == "--root-dir" else 0o755)
                self._made.append(path)

    def release(self) -> None:
        """Remove the empty directories that were made for claims, then release all locks.

        In this order, so that a start that waits for a lock sees the directory's removal.
        """
        others = {place.path for place in self.refused}
        for path in reversed(self._made):
            if path not in others:
                with contextlib.suppress(OSError):  # it is in use
                    os.rmdir(path)
        for claim in self.taken:
            os.close(claim.descriptor)
        self.taken.clear()
        self._made.clear()


def _lockable(descriptor: int, place: Place) -> int:
    """Return the descriptor, or that of a file in the directory if the file system cannot lock directories."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        return descriptor
    except OSError as error:
        if place.cgroup or error.errno not in _NEEDS_A_FILE:
            raise
        file = os.open(LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=descriptor)
        os.close(descriptor)
        return file
    return descriptor


def _lock(descriptor: int, deadline: float) -> bool:
    """Try to lock until the deadline. True with the lock. Raises OSError."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True
