"""How much directories take, by walking them. Blocks.

Gives up at a deadline and at a number of entries: what was counted until then is the answer. Never leaves the file
system it begins on.
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
"""After so many of one directory there is a sign of life, and a look at the bounds: with the lowest priority on a busy
machine they take half a second."""
NICEST = 19
_BLOCK = 512
"""st_blocks counts these, whatever the file system's own blocks are (stat(2))."""


class DiskUse(NamedTuple):
    """Space and inodes taken."""

    bytes: int = 0
    inodes: int = 0

    def plus(self, other: DiskUse) -> DiskUse:
        """Both together."""
        return DiskUse(self.bytes + other.bytes, self.inodes + other.inodes)


def lower_cpu_priority() -> None:
    """Give this thread the lowest CPU priority. For a thread that does nothing else afterwards."""
    with contextlib.suppress(OSError):  # refused in some containers; then it is merely not nice
        os.setpriority(os.PRIO_PROCESS, 0, NICEST)  # on Linux, 0 is the calling thread


@contextlib.contextmanager
def _entries(path: str, seen: os.stat_result) -> Iterator[Iterator[os.DirEntry[str]]]:
    """What is in a directory, if it is the one that was seen: a container may swap any component for a link out of its
    volume. Raises OSError."""
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
    """One walk with its bounds; counts a file with several names once."""

    def __init__(self, deadline: float, max_entries: int = MAX_ENTRIES, progress: Callable[[], object] = bool) -> None:
        """`deadline`: monotonic time at which to stop. `progress` is called for every directory and from time to
        time in a large one."""
        self._progress = progress
        self.deadline = deadline
        self.left = max_entries
        self.cut_short = False
        self._links: set[tuple[int, int]] = set()

    def measure(self, path: str) -> DiskUse:
        """What `path` and all below it on its file system take; nothing where it is not there."""
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
        """Blocks; -1 for another name of a file already counted."""
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
            log.warning("cannot count all of the pods' files in time; ranking pods by what was counted")
        return over
