"""Measures the space and inodes of directories by walking them. Blocks.

A walk stops at a deadline or at a number of entries, and returns the count so far. It stays on one file system.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

log = logging.getLogger(__name__)

MAX_ENTRIES = 500_000
MARK_ENTRIES = 1000
"""Entries of one directory between two checks of the bounds and calls of `progress`.

At the lowest priority on a busy machine this many take half a second.
"""
NICEST = 19
_BLOCK = 512
"""Bytes of a block in st_blocks, on every file system (stat(2))."""


class DiskUse(NamedTuple):
    """Used bytes and inodes."""

    bytes: int = 0
    inodes: int = 0

    def plus(self, other: DiskUse) -> DiskUse:
        """Return the sum of both."""
        return DiskUse(self.bytes + other.bytes, self.inodes + other.inodes)


def lower_cpu_priority() -> None:
    """Give this thread the lowest CPU priority. The change is final, so use a dedicated thread."""
    with contextlib.suppress(OSError):  # some containers refuse it
        os.setpriority(os.PRIO_PROCESS, 0, NICEST)  # on Linux, 0 is the calling thread


@contextlib.contextmanager
def _entries(path: str, seen: os.stat_result) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List a directory if it is still the inode `seen`. Raises OSError.

    A container may replace any component by a link that leads out of its volume.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != (seen.st_dev, seen.st_ino):
            raise FileNotFoundError(errno.ENOENT, "replaced by another directory", path)
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


class Walk:
    """One walk with its bounds. Counts a file with several hard links once."""

    def __init__(self, deadline: float, max_entries: int = MAX_ENTRIES, progress: Callable[[], object] = bool) -> None:
        """`deadline` is a monotonic time. `progress` is called for every directory and every MARK_ENTRIES entries."""
        self._progress = progress
        self.deadline = deadline
        self.left = max_entries
        self.cut_short = False
        self._links: set[tuple[int, int]] = set()

    def measure(self, path: str) -> DiskUse:
        """Return the use of `path` and all below it on its file system; zero when it does not exist."""
        try:
            top = os.lstat(path)
        except OSError:
            return DiskUse()
        total_blocks, inodes = self._count(top), 1
        pending = [(path, top)] if stat.S_ISDIR(top.st_mode) else []
        while pending and not self._is_over():
            self._progress()
            place, seen = pending.pop()
            with contextlib.suppress(OSError), _entries(place, seen) as entries:  # removed, replaced, not ours to read
                for entry in entries:
                    self.left -= 1
                    if self.left % MARK_ENTRIES == 0:
                        self._progress()
                        if self._is_over():
                            break
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    if status.st_dev != top.st_dev:
                        continue
                    blocks = self._count(status)
                    inodes += blocks >= 0
                    total_blocks += max(0, blocks)
                    if stat.S_ISDIR(status.st_mode):
                        pending.append((f"{place}/{entry.name}", status))
        return DiskUse(total_blocks * _BLOCK, inodes)

    def _count(self, status: os.stat_result) -> int:
        """Return the blocks of a file; -1 for another link to a file already counted."""
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            key = (status.st_dev, status.st_ino)
            if key in self._links:
                return -1
            self._links.add(key)
        return status.st_blocks

    def _is_over(self) -> bool:
        over = self.left <= 0 or time.monotonic() > self.deadline
        if over and not self.cut_short:
            self.cut_short = True
            log.warning("cannot count all files of pods in time: using the count so far")
        return over
