"""Exclusive locks on everything an agent owns. They end with the process, as the kernel lets go of them.

A lock is flock(2) on an open directory: it belongs to the inode, which is one on the whole machine. Bind mounts,
symbolic links, mount namespaces and cgroup namespaces lead to the same one, also in cgroupfs of both versions.
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
"""An agent that is ending has let go of its --lock-file, or answered `supervisor stop`, a moment before its claims."""
_POLL_S = 0.02
LOCK_FILE = ".nodevisor.lock"
"""In a directory of a file system, such as NFS, that locks only files which are open for writing."""
_NEEDS_A_FILE = (errno.EBADF, errno.EOPNOTSUPP, errno.ENOLCK)


class Claim(NamedTuple):
    """A place that is ours for as long as `descriptor` is open."""

    place: Place
    descriptor: int


class Claims:
    """The outcome: `taken` has our locks, `refused` the places that another process has locked."""

    def __init__(self) -> None:
        self.taken: list[Claim] = []
        self.refused: list[Place] = []
        self._made: list[str] = []

    def take(self, places: Iterable[Place]) -> None:
        """Lock every place. A place that cannot be made or opened is logged, and left to the actor that needs it.

        Waits `WAIT_S` in all for places that other agents hold.
        """
        deadline = time.monotonic() + WAIT_S
        for place in places:
            try:
                while not self._taken(place, deadline):
                    log.debug("%s was removed meanwhile", place.path)
            except OSError as error:
                log.info("cannot claim %s: %s", place.path, error.strerror)

    def _taken(self, place: Place, deadline: float) -> bool:
        """False: the directory was removed before it was locked. Raises OSError."""
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
        """The directory and those above it, with the modes that the actors give them."""
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
        """Remove the directories that were made for a claim and are still empty, then let go of everything.

        In this order, so that a start that waits for the lock sees that the directory is gone.
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
    """The descriptor, or in its place that of a file in the directory where the file system locks no directories."""
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
    """Try until the deadline; True with the lock. Raises OSError."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True
