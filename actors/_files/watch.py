"""Watches the directory of a source, or its parent, by inotify, and interprets the events. Also directories below.

A periodic re-list finds changes that inotify misses: on network file systems, after a queue overflow, and below a
parent that does not exist yet.
"""

import contextlib
import logging
import os
from collections.abc import Collection
from typing import NamedTuple

from inotify_simple import INotify, flags

log = logging.getLogger(__name__)

_WRITING = flags.CREATE | flags.MODIFY
_SETTLED = flags.CLOSE_WRITE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.ATTRIB
_GONE = flags.MOVED_FROM | flags.DELETE
_ITSELF = flags.DELETE_SELF | flags.MOVE_SELF
_INSIDE = _WRITING | _SETTLED | _ITSELF | flags.ONLYDIR
_BESIDE = (
    flags.CREATE | flags.CLOSE_WRITE | flags.MODIFY | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.ONLYDIR
)


class Change(NamedTuple):
    """A change of a file, by name. An empty name means the path itself, or an unknown change.

    Unknown is what an overflow has lost, and what has changed in a directory below.
    """

    name: str
    created: bool = False
    written: bool = False
    removed: bool = False
    """Deleted or renamed; another file of the name may exist by now."""


class Watch:
    """Watches one path: a directory, a file, or a path that does not exist yet."""

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/") or "/"
        self._inotify = INotify(nonblocking=True)
        self._inside = -1
        self._beside = -1
        self._below: set[int] = set()

    def fileno(self) -> int:
        """The descriptor that becomes readable after a change."""
        return int(self._inotify.fileno())

    @property
    def active(self) -> bool:
        """True when the files' own directory is watched."""
        return self._inside >= 0 or (self._beside >= 0 and os.path.isfile(self._path))

    def ensure(self) -> None:
        """Set the watches after the path appeared or was replaced. Call it before a listing, to miss no change."""
        is_directory = os.path.isdir(self._path)
        # A directory reports its own removal. Its parent may be busy (/tmp): it is watched only without the directory.
        parent = os.path.dirname(self._path) or "."
        inside = self._add(self._path, _INSIDE) if is_directory else -1
        beside = -1 if is_directory else self._add(parent, _BESIDE)
        old = {self._inside, self._beside} - {inside, beside, -1}
        self._inside, self._beside = inside, beside
        for descriptor in old:
            with contextlib.suppress(OSError):  # gone with its directory
                self._inotify.rm_watch(descriptor)

    def add_below(self, descriptor: int) -> int:
        """Watch a directory below as well, by its descriptor. Call it before a listing. Returns the watch, or -1.

        By its descriptor, since a path may lead through a link by now.
        """
        watch = self._add(f"/proc/self/fd/{descriptor}", _INSIDE)
        if watch >= 0:
            self._below.add(watch)
        return watch

    def retain_below(self, watches: Collection[int]) -> None:
        """Drop the watches of all other directories below."""
        for watch in self._below - set(watches) - {self._inside, self._beside}:
            self._below.discard(watch)
            with contextlib.suppress(OSError):  # gone with its directory
                self._inotify.rm_watch(watch)

    def _add(self, path: str, mask: int) -> int:
        try:
            return int(self._inotify.add_watch(path, mask))
        except OSError as error:
            log.debug("cannot watch %s: %s; the periodic re-list finds changes", path, error.strerror)
            return -1

    def read(self) -> list[Change]:
        """Return what happened since the last read; never blocks."""
        changes = []
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW or event.wd in self._below:
                changes.append(Change(""))
            elif event.wd == self._inside or (event.wd == self._beside and event.name == os.path.basename(self._path)):
                changes.append(_inside(event.mask, event.name))
        return changes


def _inside(mask: int, name: str) -> Change:
    if mask & flags.ISDIR or not mask & _WRITING:
        return Change(name, removed=bool(mask & _GONE) and not mask & flags.ISDIR)
    return Change(name, created=bool(mask & flags.CREATE), written=bool(mask & flags.MODIFY))
