"""Watches the directory of a source, or its parent, by inotify, and interprets the events. Also directories below.

A periodic re-list finds changes that inotify misses: on network file systems, after a queue overflow, and below a
parent that does not exist yet. It finds all of them while the kernel has no inotify instance for us.
"""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Collection
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
        self._inotify: INotify | None = None
        """None until `ensure` gets an instance: root's pods and agents share 128 by default."""
        self._opening = threading.Lock()
        self._opened: Callable[[int], None] = lambda _: None
        self._period_s = 0.0
        self._problem = ""
        self._inside = -1
        self._beside = -1
        self._below: set[int] = set()

    def start(self, period_s: float, opened: Callable[[int], None]) -> None:
        """`opened` gets the descriptor that becomes readable after a change, once, in the thread of an `ensure`.

        `period_s` is that of the re-list, for the log.
        """
        self._period_s, self._opened = period_s, opened

    @property
    def active(self) -> bool:
        """True when the files' own directory is watched."""
        return self._inside >= 0 or (self._beside >= 0 and os.path.isfile(self._path))

    def ensure(self) -> None:
        """Set the watches after the path appeared or was replaced. Call it before a listing, to miss no change.

        Without an inotify instance it does nothing, and the next call tries again.
        """
        self._open()
        is_directory = os.path.isdir(self._path)
        # A directory reports its own removal. Its parent may be busy (/tmp): it is watched only without the directory.
        parent = os.path.dirname(self._path) or "."
        inside = self._add(self._path, _INSIDE) if is_directory else -1
        beside = -1 if is_directory else self._add(parent, _BESIDE)
        old = {self._inside, self._beside} - {inside, beside, -1}
        self._inside, self._beside = inside, beside
        for watch in old:
            self._drop(watch)

    def _open(self) -> None:
        """Get an instance. Two threads may be here: a listing that hangs goes on beside the next one."""
        with self._opening:
            if self._inotify is not None:
                return
            try:
                self._inotify = INotify(nonblocking=True)
            except OSError as error:
                problem = _why(error)
                if problem != self._problem:
                    log.error("cannot watch %s: %s; it is listed every %g s", self._path, problem, self._period_s)
                self._problem = problem
                return
        if self._problem:
            log.info("%s is watched again", self._path)
        self._opened(self._inotify.fileno())

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
            self._drop(watch)

    def _drop(self, watch: int) -> None:
        if self._inotify is not None:
            with contextlib.suppress(OSError):  # gone with its directory
                self._inotify.rm_watch(watch)

    def _add(self, path: str, mask: int) -> int:
        if self._inotify is None:
            return -1
        try:
            return int(self._inotify.add_watch(path, mask))
        except OSError as error:
            log.debug("cannot watch %s: %s; the periodic re-list finds changes", path, error.strerror)
            return -1

    def read(self) -> list[Change]:
        """Return what happened since the last read; never blocks."""
        changes: list[Change] = []
        if self._inotify is None:
            return changes
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW or event.wd in self._below:
                changes.append(Change(""))
            elif event.wd == self._inside or (event.wd == self._beside and event.name == os.path.basename(self._path)):
                changes.append(_inside(event.mask, event.name))
        return changes


def _why(error: OSError) -> str:
    """The reason why there is no instance. EMFILE stands for two limits: of instances, and of open files."""
    if error.errno == errno.EMFILE:
        with contextlib.suppress(OSError):
            os.close(os.open("/", os.O_PATH | os.O_CLOEXEC))
            return "no inotify instance is free; raise the sysctl fs.inotify.max_user_instances"
    return os.strerror(error.errno or 0)


def _inside(mask: int, name: str) -> Change:
    if mask & flags.ISDIR or not mask & _WRITING:
        return Change(name, removed=bool(mask & _GONE) and not mask & flags.ISDIR)
    return Change(name, created=bool(mask & flags.CREATE), written=bool(mask & flags.MODIFY))
