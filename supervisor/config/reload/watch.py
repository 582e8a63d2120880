"""Watches the files of --config and --config-dir by inotify.

Watched directories are those of the file, of each symbolic link on the way to it, and of drop-ins. A change counts once
its writer has finished and `stat` differs. Reads no file.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from inotify_simple import INotify, flags

from supervisor.config.reload.start import Seen

log = logging.getLogger(__name__)

DEBOUNCE_S = 0.05
"""A change is often several events: a rename, a swapped link and a removal."""
WRITER_S = 2.0
"""The longest wait for a program that writes a file in place."""
RESCAN_S = 30.0
"""The files are also checked this often: network file systems have no inotify."""
_MAX_LINKS = 40  # the kernel's own limit, path_resolution(7)
_MAX_FILES = 1000
_DEPTH = 8

_EVENTS = (
    flags.CREATE
    | flags.MODIFY
    | flags.CLOSE_WRITE
    | flags.MOVED_TO
    | flags.MOVED_FROM
    | flags.DELETE
    | flags.ATTRIB
    | flags.DELETE_SELF
    | flags.MOVE_SELF
    | flags.ONLYDIR
)


def stat_files(config: str, config_dir: str) -> Seen:
    """The present `stat` of every file. A missing file has zeros; nothing is raised."""
    paths = [config] if config else []
    if config_dir:
        paths += [config_dir, *(path for directory in _directories(config_dir) for path in _files(directory))]
    return tuple(_stat(path) for path in paths[:_MAX_FILES])


def _stat(path: str) -> tuple[str, int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    if os.path.isdir(path):
        return path, found.st_ino, 0, 0
    return path, found.st_ino, found.st_mtime_ns, found.st_size


def _directories(top: str, depth: int = _DEPTH) -> Iterator[str]:
    """`top` and the directories below it. As for drop-ins: no links, nothing that begins with two dots."""
    yield top
    with contextlib.suppress(OSError), os.scandir(top) as found:
        inner = sorted(entry.path for entry in found if not entry.name.startswith("..") and _is_directory(entry))
        for path in inner if depth else ():
            yield from _directories(path, depth - 1)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _files(directory: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(directory) as found:
        return sorted(entry.path for entry in found if entry.name.endswith(".conf") and not _is_directory(entry))
    return []


def places(path: str) -> set[tuple[str, str]]:
    """Directory and name of the file and of every symbolic link on the way to it."""
    found: set[tuple[str, str]] = set()
    rest = os.path.abspath(path).strip("/").split("/")
    at = "/"
    for _ in range(_MAX_LINKS * 10):
        if not rest:
            break
        name = rest.pop(0)
        here = os.path.join(at, name)
        try:
            target = os.readlink(here)
        except OSError:
            if not rest:
                found.add((at, name))
            at = here
            continue
        found.add((at, name))
        at = "/" if target.startswith("/") else at
        rest = [part for part in target.split("/") if part not in ("", ".")] + rest
        while rest and rest[0] == "..":
            rest.pop(0)
            at = os.path.dirname(at)
    return found


class Watch:
    """One inotify descriptor for all files. Call `changed` at the time that `due` gives."""

    def __init__(self, config: str, config_dir: str, seen: Seen, now: float) -> None:
        """`seen` is the result of `look` before the files were read, so that no change in between is missed."""
        self._config, self._config_dir = os.path.abspath(config) if config else "", config_dir
        self._given = config, config_dir
        self._inotify: INotify | None = None
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            log.warning("cannot watch the configuration files: %s; they are checked every %g s", error, RESCAN_S)
        self._watched: dict[int, str] = {}
        self._names: set[tuple[str, str]] = set()
        self._writing: dict[tuple[int, str], float] = {}
        self._seen = seen
        self._due: float | None = now
        self._next_scan = now + RESCAN_S
        self.ensure()

    def fileno(self) -> int:
        """For polling; -1 when the kernel gave no inotify instance."""
        return int(self._inotify.fileno()) if self._inotify is not None else -1

    def ensure(self) -> None:
        """Update the watches after directories or links changed."""
        wanted: set[str] = set()
        self._names = set()
        for path in (self._config, self._config_dir):
            if path:
                self._names |= places(path)
                wanted |= {directory for directory, _ in places(path)}
        if self._config_dir:
            wanted |= set(_directories(os.path.realpath(self._config_dir)))
            for path in filter(os.path.islink, _files(self._config_dir)):
                self._names |= places(path)
                wanted |= {directory for directory, _ in places(path)}
        self._set(wanted)

    def _set(self, wanted: set[str]) -> None:
        if self._inotify is None:
            return
        watched: dict[int, str] = {}
        for directory in wanted:
            with contextlib.suppress(OSError):  # a missing directory is found by the next rescan
                watched[int(self._inotify.add_watch(directory, _EVENTS))] = directory
        for descriptor in self._watched.keys() - watched.keys():
            with contextlib.suppress(OSError):  # gone with its directory
                self._inotify.rm_watch(descriptor)
        self._watched = watched

    def read(self, now: float) -> None:
        """Read inotify events."""
        for event in self._inotify.read(timeout=0) if self._inotify is not None else ():
            directory = self._watched.get(event.wd, "")
            if event.name and directory and not self._concerns(directory, event.name):
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
        top = os.path.realpath(self._config_dir) if self._config_dir else ""
        return bool(top) and (directory == top or directory.startswith(f"{top}/"))

    def due(self) -> float:
        """The monotonic time of the next call of `changed`."""
        if self._due is None:
            return self._next_scan
        if self._writing:
            return min(self._next_scan, max(self._due, min(self._writing.values()) + WRITER_S))
        return min(self._next_scan, self._due)

    def changed(self, now: float) -> bool:
        """True when the files differ from those at the last call."""
        self._due, self._next_scan = None, now + RESCAN_S
        self._writing.clear()
        seen = stat_files(*self._given)
        if seen == self._seen:
            return False
        self._seen = seen
        self.ensure()
        if stat_files(*self._given) != seen:  # changed before the new watches were set
            self._due = now + DEBOUNCE_S
        return True

    def close(self) -> None:
        """Close the descriptor."""
        if self._inotify is not None:
            self._inotify.close()
