"""Measures the space and inodes of directories by walking them. Blocks.

A walk stops at a deadline, and returns the count so far. A later one can go on from there. It stays on one file system.
Containers change the directories meanwhile, and may nest them deeper than a path may be long. So each directory is
opened by its name in its parent's descriptor. No link is followed. Memory and descriptors have bounds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger(__name__)

MARK_ENTRIES = 1000
"""Entries of one directory between two checks of the bounds and calls of `progress`.

At the lowest priority on a busy machine this many take half a second.
"""
NICEST = 19
_MOST_REMEMBERED = 100_000
"""Directories ahead, those on the way, and files with several links, that one walk remembers: 60 MB at worst, for each.

Further ones ahead are found again by another look into their directory.
"""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512
"""Bytes of a block in st_blocks, on every file system (stat(2))."""
_PARTS = 1 << 52
"""Parts of a block or inode, for the share that one of several hard links has. XFS allows 2^31 links."""

MOST_USE = (1 << 63) - 1
"""Largest sum. A message holds numbers of 64 bits."""


class DiskUse(NamedTuple):
    """Used bytes and inodes."""

    bytes: int = 0
    inodes: int = 0

    def plus(self, other: DiskUse) -> DiskUse:
        """Return the sum of both, at most MOST_USE. A runtime may report up to 2^64-1 for each container."""
        return DiskUse(min(MOST_USE, self.bytes + other.bytes), min(MOST_USE, self.inodes + other.inodes))

    def most(self, other: DiskUse) -> DiskUse:
        """Return the larger number of both, for bytes and for inodes."""
        return DiskUse(max(self.bytes, other.bytes), max(self.inodes, other.inodes))


class Mark(NamedTuple):
    """The entry, of one name, at which a walk stopped. A later walk finds it again, unless it was changed or moved."""

    inode: int = 0
    """0: the walk stopped elsewhere."""
    changed_ns: int = 0
    """Its ctime, as a new file may get the inode of a deleted one."""


NO_MARK = Mark()


def lower_cpu_priority() -> None:
    """Give this thread the lowest CPU priority. The change is final, so use a dedicated thread."""
    with contextlib.suppress(OSError):  # some containers refuse it
        os.setpriority(os.PRIO_PROCESS, 0, NICEST)  # on Linux, 0 is the calling thread


class _Level:
    """A directory on the way from the top to the present one."""

    __slots__ = ("ahead", "found", "inode", "more", "name")

    def __init__(self, name: str, inode: int) -> None:
        self.name = name
        self.inode = inode
        self.ahead: list[str] = []
        """Names of directories in it that are still to be entered, the next one last."""
        self.found = 0
        """Number of directories in it that are entered or noted: the first ones in its order."""
        self.more = False
        """It has further ones."""


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
        self.remembered = 0
        """Number of directories ahead, on all levels."""
        self._highest = 0
        """None are noted on the levels above this one."""

    @property
    def level(self) -> _Level:
        """The present directory."""
        return self._levels[-1]

    @property
    def is_deepest(self) -> bool:
        """True where no further directory can be entered."""
        return len(self._levels) >= _MOST_REMEMBERED

    def note(self, names: list[str], *, more: bool) -> None:
        """Note further directories of the present one, in its order, to be entered. `more`: it has others behind."""
        level = self.level
        names.reverse()
        level.ahead, level.more = names, more
        level.found += len(names)
        self.remembered += len(names)
        self._highest = min(self._highest, len(self._levels) - 1)

    def has_room(self, number: int) -> bool:
        """Return True when so many further directories may be noted. May forget those noted on the highest levels.

        They are needed last. Before that the walk enters so many others that another look there costs little.
        """
        while self.remembered + number > _MOST_REMEMBERED and self._highest < len(self._levels) - 1:
            level = self._levels[self._highest]
            self._highest += 1
            if level.ahead:
                self.remembered -= len(level.ahead)
                level.found -= len(level.ahead)
                level.ahead, level.more = [], True
        return self.remembered + number <= _MOST_REMEMBERED

    def enter_next(self) -> bool:
        """Enter the next noted directory in the present one; return False when there is none that can be entered."""
        ahead = self.level.ahead
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
        self._go(child)

    def _return(self) -> None:
        way, self._levels = self._levels[1:], self._levels[:1]
        self._go(self._top)
        for number, level in enumerate(way):
            try:
                self._enter(level)
            except OSError:
                self.remembered -= sum(len(one.ahead) for one in way[number:])
                return

    def _go(self, directory: int) -> None:
        if self.here not in (self._top, directory):
            os.close(self.here)
        self.here = directory


class Walk:
    """A walk with its bounds. Counts a file with several hard links once."""

    def __init__(
        self,
        deadline: float,
        max_entries: int = sys.maxsize,
        progress: Callable[[], object] = bool,
        to_skip: int = 0,
        share_links: bool = False,
        mark: Mark = NO_MARK,
    ) -> None:
        """`deadline` is a monotonic time. `progress` is called for every directory and every MARK_ENTRIES entries.

        `to_skip`: number of entries that an earlier walk has counted. They are not counted, and cost a fifth.
        `share_links`: of a file with several links each one counts its share. So walks that go on need not know which
        files were counted. All links have to be below the top.
        `mark` of the earlier walk: where it is found, the earlier walk ended, although files came or went before it.
        """
        self._progress = progress
        self.deadline = deadline
        self.left = max_entries
        self.to_skip = to_skip
        self.seen = 0
        """Entries that were counted or skipped."""
        self.late = self.cut_short = False
        """`late`: it stopped before it had seen all. `cut_short`: it has not counted all, for any reason."""
        self.to_find = mark
        """Not found yet."""
        self._share_links = share_links
        self._last: os.stat_result | None = None
        """Of the last entry that was counted."""
        self._links: set[tuple[int, int]] = set()
        self._blocks = self._inodes = 0
        """In _PARTS."""

    @property
    def use(self) -> DiskUse:
        """The count of the present or last measurement so far. Safe from any thread."""
        return DiskUse(*((parts + _PARTS // 2) // _PARTS for parts in (self._blocks * _BLOCK, self._inodes)))

    @property
    def mark(self) -> Mark:
        """The entry at which it stopped."""
        return _mark(self._last) if self._last is not None else NO_MARK

    def measure(self, path: str) -> DiskUse:
        """Return the use of `path` and all below it on its file system; zero when it does not exist."""
        self._blocks = self._inodes = 0
        try:
            status = os.lstat(path)
        except OSError:
            return DiskUse()
        if not self.to_skip:
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
                elif position.level.more:
                    self._find_more(position)
                else:
                    inside = position.leave()
        finally:
            position.close()

    def _measure_entries(self, position: _Position) -> None:
        device, more = os.fstat(position.here).st_dev, False
        ahead: list[str] = []
        with contextlib.suppress(OSError), os.scandir(position.here) as entries:
            for entry in entries:
                if not self._go_on():
                    return
                self.seen += 1
                try:
                    is_directory = self._see(entry, device)
                except OSError:
                    continue
                more = more or (is_directory and not position.has_room(len(ahead) + 1))
                if is_directory and not more:
                    ahead.append(entry.name)
        if ahead and position.is_deepest:
            self._cut_short("directories are nested too deep")
        else:
            position.note(ahead, more=more)

    def _see(self, entry: os.DirEntry[str], device: int) -> bool:
        """Count or skip an entry; return True for a directory. Raises OSError."""
        if entry.inode() == self.to_find.inode and _mark(entry.stat(follow_symlinks=False)) == self.to_find:
            self.to_skip, self.to_find = 0, NO_MARK
            self._last = entry.stat(follow_symlinks=False)
            self._blocks = self._inodes = 0  # the earlier walk counted these, and more files are before them now
            return entry.is_dir(follow_symlinks=False)
        if self.to_skip:
            self.to_skip -= 1
            return entry.is_dir(follow_symlinks=False)
        status = entry.stat(follow_symlinks=False)
        if status.st_dev == device:
            self._last = status
            self._count(status)
        return stat.S_ISDIR(status.st_mode)

    def _find_more(self, position: _Position) -> None:
        """Note the next directories of the present one."""
        known, more = position.level.found, False
        ahead: list[str] = []
        with contextlib.suppress(OSError), os.scandir(position.here) as entries:
            for entry in entries:
                if not self._go_on():
                    return
                if not entry.is_dir(follow_symlinks=False):
                    continue
                if known:
                    known -= 1
                elif position.has_room(len(ahead) + 1):
                    ahead.append(entry.name)
                else:
                    more = True
                    break
        position.note(ahead, more=more)

    def _go_on(self) -> bool:
        """False when the walk is over. To be asked for each entry."""
        self.left -= 1
        if self.left % MARK_ENTRIES:
            return True
        self._progress()
        return not self._is_over()

    def _count(self, status: os.stat_result) -> None:
        part = _PARTS
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if self._share_links:
                part //= status.st_nlink
            elif not self._is_new(status):
                return
        self._blocks += status.st_blocks * part
        self._inodes += part

    def _is_new(self, status: os.stat_result) -> bool:
        key = (status.st_dev, status.st_ino)
        if key in self._links:
            return False
        if len(self._links) < _MOST_REMEMBERED:  # past it, each name of a file counts
            self._links.add(key)
        return True

    def _is_over(self) -> bool:
        over = self.left <= 0 or time.monotonic() > self.deadline
        if over:
            self.late = True
            self._cut_short("they are too many, or the disk is too slow")
        return over

    def _cut_short(self, why: str) -> None:
        if not self.cut_short:
            self.cut_short = True
            log.warning("cannot count all files of pods: %s; using the count so far", why)


def _mark(status: os.stat_result) -> Mark:
    has_one_name = status.st_nlink == 1 or stat.S_ISDIR(status.st_mode)
    return Mark(status.st_ino, status.st_ctime_ns) if has_one_name else NO_MARK
