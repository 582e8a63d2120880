"""Watches the files of --config and --config-dir by inotify. A process of its own looks at them (`look`).

Watched directories are those of the file, of each symbolic link on the way to it, and of drop-ins. A change counts once
its writer has finished and `stat` differs. Nothing here touches the files: their file system may hang.
"""

from __future__ import annotations

import logging
from functools import reduce
from operator import or_

from inotify_simple import INotify, flags

from supervisor.config.kubeletconfig.problems import file_name
from supervisor.config.reload.look import Found, Request, Seen

log = logging.getLogger(__name__)

DEBOUNCE_S = 0.05
"""A change is often several events: a rename, a swapped link and a removal."""
WRITER_S = 2.0
"""The longest wait for a program that writes a file in place."""
RESCAN_S = 30.0
"""The files are also checked this often: network file systems have no inotify."""

_EVENTS = reduce(
    or_,
    (
        flags.CREATE,
        flags.MODIFY,
        flags.CLOSE_WRITE,
        flags.MOVED_TO,
        flags.MOVED_FROM,
        flags.DELETE,
        flags.ATTRIB,
        flags.DELETE_SELF,
        flags.MOVE_SELF,
        flags.ONLYDIR,
    ),
)


class Watch:
    """One inotify descriptor for all files. At the time that `due` gives, call `request`; `take` gets the answer."""

    def __init__(self, config: str, config_dir: str, seen: Seen, now: float) -> None:
        """`seen` is the result of `look.stat_files` before the files were read, so that no change is missed."""
        self._given = config, config_dir
        self._inotify: INotify | None = None
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            log.warning("cannot watch the configuration files: %s; they are checked every %g s", error, RESCAN_S)
        self._watched: dict[int, str] = {}
        self._names: set[tuple[str, str]] = set()
        self._top = ""
        self._is_set = False
        self._writing: dict[tuple[int, str], float] = {}
        self._seen = seen
        self._due: float | None = now
        self._next_scan = now + RESCAN_S

    def fileno(self) -> int:
        """For polling; -1 when the kernel gave no inotify instance."""
        return int(self._inotify.fileno()) if self._inotify is not None else -1

    def read(self, now: float) -> None:
        """Read inotify events."""
        for event in self._inotify.read(timeout=0) if self._inotify is not None else ():
            directory = self._watched.get(event.wd, "")
            if event.name and directory and not self._concerns(directory, file_name(event.name)):
                continue
            key = event.wd, event.name
            if event.mask & flags.MODIFY:
                self._writing.setdefault(key, now)
            elif event.mask & (flags.CLOSE_WRITE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO):
                self._writing.pop(key, None)
            self._due = now + DEBOUNCE_S

    def _concerns(self, directory: str, name: str) -> bool:
        if (directory, name) in self._names:
            return True
        return bool(self._top) and (directory == self._top or directory.startswith(f"{self._top}/"))

    def due(self) -> float:
        """The monotonic time of the next look."""
        if self._due is None:
            return self._next_scan
        if self._writing:
            return min(self._next_scan, max(self._due, min(self._writing.values()) + WRITER_S))
        return min(self._next_scan, self._due)

    def request(self, now: float) -> Request:
        """The orders for the next look. Events from now on ask for a further one."""
        self._due, self._next_scan = None, now + RESCAN_S
        self._writing.clear()
        return {
            "config": self._given[0],
            "config_dir": self._given[1],
            "seen": self._seen,
            "inotify": self.fileno(),
            "mask": int(_EVENTS),
            "watched": list(self._watched),
            "first": not self._is_set,
        }

    def take(self, found: Found, now: float) -> bool:
        """Take a look's result. True when the files differ from those at the last one."""
        if (places := found["places"]) is not None:
            self._is_set = True
            self._watched = {int(number): directory for number, directory in places["watched"].items()}
            self._names = {(directory, name) for directory, name in places["names"]}
            self._top = places["top"]
            if places["moved"]:
                self._due = now + DEBOUNCE_S
        is_changed = found["seen"] != self._seen
        self._seen = found["seen"]
        return is_changed

    def close(self) -> None:
        """Close the descriptor."""
        if self._inotify is not None:
            self._inotify.close()
