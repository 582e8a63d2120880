"""Measures the space and inodes of directories by walking them. Blocks.

A walk stops at a deadline or at a number of entries, and returns the count so far. It stays on one file system.
Containers change the directories meanwhile, and may nest them deeper than a path may be long. So each directory is
opened by its name in its parent's descriptor. No link is followed. Memory and descriptors have bounds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger(__name__)

MAX_ENTRIES = 500_000
MARK_ENTRIES = 1000
"""Entries of one directory between two checks of the bounds and calls of `progress`.

At the lowest priority on a busy machine this many take half a second.
"""
NICEST = 19
_MOST_REMEMBERED = 100_000
"""Directories on the way and ahead, and files with several links, that one walk remembers: 60 MB at worst, for each."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512
"""Bytes of a block in st_blocks, on every file system (stat(2))."""

MOST_USE = (1 << 63) - 1
"""Largest sum. A message holds numbers of 64 bits."""


class DiskUse(NamedTuple):
    """Used bytes and inodes."""

    bytes: int = 0
    inodes: int = 0

    def plus(self, other: DiskUse) -> DiskUse:
        """Return the sum of both, at most MOST_USE. A runtime may report up to 2^64-1 for each container."""
        return DiskUse(min(MOST_USE, self.bytes + other.bytes), min(MOST_USE, self.inodes + other.inodes))


def lower_cpu_priority() -> None:
    """Give this thread the lowest CPU priority. The change is final, so use a dedicated thread."""
    with contextlib.suppress(OSError):  # some containers refuse it
        os.setpriority(os.PRIO_PROCESS, 0, NICEST)  # on Linux, 0 is the calling thread


class _Level:
    """A directory on the way from the top to the present one."""

    __slots__ = ("ahead", "inode", "name")

    def __init__(self, name: str, inode: int) -> None:
        self.name = name
        self.inode = inode
        self.ahead: list[str] = []
        """Names of the directories in it that are still to be entered."""


class _Position:
    """The present directory of a walk below `top`, a descriptor.

    One descriptor is open at any depth. The way back is `..`. It leads elsewhere once the directory was moved. Then the
    way is taken again from the top, as far as it still exists.
    """

    def __init__(self, top: int) -> None:
        status = os.fstat(top)
        self._top = self.here = top
        self._device = status.st_dev
        self._levels = [_Level("", status.st_ino)]
        self.remembered = 1
        """Number of directories on the way and ahead."""

    def add(self, name: str) -> None:
        """Note a directory in the present one, to be entered."""
        self._levels[-1].ahead.append(name)
        self.remembered += 1

    def enter_next(self) -> bool:
        """Enter the next directory in the present one; return False when there is none left that can be entered."""
        ahead = self._levels[-1].ahead
        while ahead:
            name = ahead.pop()
            self.remembered -= 1
            with contextlib.suppress(OSError):  # removed, replaced, not ours to read
                self._enter(_Level(name, 0))
                return True
        return False

    def leave(self) -> bool:
        """Go back to the directory above, or to a higher one when it was moved; return False at the top."""
        self._levels.pop()
        self.remembered -= 1
        if len(self._levels) < 2:
            self._go(self._top)
            return bool(self._levels)
        with contextlib.suppress(OSError):  # not ours to search
            parent = os.open("..", _DIRECTORY, dir_fd=self.here)
            status = os.fstat(parent)
            if (status.st_dev, status.st_ino) == (self._device, self._levels[-1].inode):
                self._go(parent)
                return True
            os.close(parent)
        self._return()
        return True

    def close(self) -> None:
        """Close the present directory; `top` stays open."""
        self._go(self._top)

    def _enter(self, level: _Level) -> None:
        """Open a directory in the present one; it must have the level's inode, if that is set. Raises OSError."""
        child = os.open(level.name, _DIRECTORY, dir_fd=self.here)
        status = os.fstat(child)
        if status.st_dev != self._device or level.inode not in (0, status.st_ino):
            os.close(child)
            raise FileNotFoundError
        level.inode = status.st_ino
        self._levels.append(level)
        self.remembered += 1
        self._go(child)

    def _return(self) -> None:
        way, self._levels = self._levels[1:], self._levels[:1]
        self._go(self._top)
        for number, level in enumerate(way):
            try:
                self._enter(level)
                self.remembered -= 1  # it was counted before
            except OSError:
                self.remembered -= sum(1 + len(one.ahead) for one in way[number:])
                return

    def _go(self, directory: int) -> None:
        if self.here not in (self._top, directory):
            os.close(self.here)
        self.here = directory


class Walk:
    """One walk with its bounds. Counts a file with several hard links once."""

    def __init__(self, deadline: float, max_entries: int = MAX_ENTRIES, progress: Callable[[], object] = bool) -> None:
        """`deadline` is a monotonic time. `progress` is called for every directory and every MARK_ENTRIES entries."""
        self._progress = progress
        self.deadline = deadline
        self.left = max_entries
        self.cut_short = False
        self._links: set[tuple[int, int]] = set()
        self._blocks = self._inodes = 0

    @property
    def use(self) -> DiskUse:
        """The count of the present or last measurement so far. Safe from any thread."""
        return DiskUse(self._blocks * _BLOCK, self._inodes)

    def measure(self, path: str) -> DiskUse:
        """Return the use of `path` and all below it on its file system; zero when it does not exist."""
        self._blocks = self._inodes = 0
        try:
            status = os.lstat(path)
        except OSError:
            return DiskUse()
        self._count(status)
        if stat.S_ISDIR(status.st_mode) and not self._is_over():
            with contextlib.suppress(OSError):  # removed, replaced, not ours to read
                top = os.open(path, _DIRECTORY)
                try:
                    self._measure_below(top)
                finally:
                    os.close(top)
        return self.use

    def _measure_below(self, top: int) -> None:
        position = _Position(top)
        inside = True
        try:
            self._progress()
            self._measure_entries(position)
            while inside and not self._is_over():
                self._progress()
                if position.enter_next():
                    self._measure_entries(position)
                else:
                    inside = position.leave()
        finally:
            position.close()

    def _measure_entries(self, position: _Position) -> None:
        device = os.fstat(position.here).st_dev
        with contextlib.suppress(OSError), os.scandir(position.here) as entries:
            for entry in entries:
                self.left -= 1
                if self.left % MARK_ENTRIES == 0:
                    self._progress()
                    if self._is_over():
                        return
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if status.st_dev != device:
                    continue
                self._count(status)
                if stat.S_ISDIR(status.st_mode):
                    if position.remembered < _MOST_REMEMBERED:
                        position.add(entry.name)
                    else:
                        self._cut_short("too many directories are beside each other")

    def _count(self, status: os.stat_result) -> None:
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            key = (status.st_dev, status.st_ino)
            if key in self._links:
                return
            if len(self._links) < _MOST_REMEMBERED:  # past it, each name of a file counts
                self._links.add(key)
        self._blocks += status.st_blocks
        self._inodes += 1

    def _is_over(self) -> bool:
        over = self.left <= 0 or time.monotonic() > self.deadline
        if over:
            self._cut_short("they are too many, or the disk is too slow")
        return over

    def _cut_short(self, why: str) -> None:
        if not self.cut_short:
            self.cut_short = True
            log.warning("cannot count all files of pods: %s; using the count so far", why)
