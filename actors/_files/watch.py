"""The kernel's word that a file changed: inotify on the directory of a source, or on its parent.

Covers watches and the meaning of their events. The periodic re-list is the safety net for what inotify does not see
(network file systems, an overflown queue, a parent that does not exist yet).
"""

import contextlib
import logging
import os
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
    """Something happened to a name; an empty name is the path itself, or too much to say what."""

    name: str
    created: bool = False
    written: bool = False
    removed: bool = False
    """Deleted or renamed away; another file of the name may be there by now."""


class Watch:
    """Watches one path, whether it is a directory, a file or not there yet."""

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/") or "/"
        self._inotify = INotify(nonblocking=True)
        self._inside = -1
        self._beside = -1

    def fileno(self) -> int:
        """The descriptor that becomes readable when something changed."""
        return int(self._inotify.fileno())

    @property
    def active(self) -> bool:
        """The directory of the files themselves is watched."""
        return self._inside >= 0 or (self._beside >= 0 and os.path.isfile(self._path))

    def ensure(self) -> None:
        """Set the watches where the path appeared or was replaced. Before a listing, so that nothing is missed."""
        is_directory = os.path.isdir(self._path)
        # A directory tells of its own end; its parent may be a busy place (/tmp) and is watched only for want of it.
        parent = os.path.dirname(self._path) or "."
        inside = self._add(self._path, _INSIDE) if is_directory else -1
        beside = -1 if is_directory else self._add(parent, _BESIDE)
        old = {self._inside, self._beside} - {inside, beside, -1}
        self._inside, self._beside = inside, beside
        for descriptor in old:
            with contextlib.suppress(OSError):  # gone with its directory
                self._inotify.rm_watch(descriptor)

    def _add(self, path: str, mask: int) -> int:
        try:
            return int(self._inotify.add_watch(path, mask))
        except OSError as error:
            log.debug("cannot watch %s: %s; it is listed from time to time", path, error.strerror)
            return -1

    def read(self) -> list[Change]:
        """Return what happened since the last read; never blocks."""
        changes = []
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW:
                changes.append(Change(""))
            elif event.wd == self._inside or (event.wd == self._beside and event.name == os.path.basename(self._path)):
                changes.append(_inside(event.mask, event.name))
        return changes


def _inside(mask: int, name: str) -> Change:
    if mask & flags.ISDIR or not mask & _WRITING:
        return Change(name, removed=bool(mask & _GONE) and not mask & flags.ISDIR)
    return Change(name, created=bool(mask & flags.CREATE), written=bool(mask & flags.MODIFY))
