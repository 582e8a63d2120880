"""The kernel's word that a configuration file changed: inotify around --config and --config-dir.

Covers which directories to watch (where the file is, where each symbolic link on the way to it is, every directory of
drop-ins), waiting for a writer to finish, and telling a real change by `stat`. Reads no file.
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
"""The longest that somebody who writes in place is waited for."""
NET_S = 30.0
"""Without any event the files are looked at this often: network file systems have no inotify."""
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


def look(config: str, config_dir: str) -> Seen:
    """The files as they are. One that is not there counts as such; nothing is raised."""
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
    """Directory and name of everything whose change makes the path another file: itself and the links on the way."""
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
    """One descriptor for all of it. `due` says when `changed` is worth a call."""

    def __init__(self, config: str, config_dir: str, seen: Seen, now: float) -> None:
        """`seen` is what `look` found before the files were read, so that nothing is missed in between."""
        self._config, self._config_dir = os.path.abspath(config) if config else "", config_dir
        self._given = config, config_dir
        self._inotify: INotify | None = None
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            log.warning("cannot watch the configuration files: %s; they are looked at every %g s", error, NET_S)
        self._watched: dict[int, str] = {}
        self._names: set[tuple[str, str]] = set()
        self._writing: dict[tuple[int, str], float] = {}
        self._seen = seen
        self._due: float | None = now
        self._net = now + NET_S
        self.ensure()

    def fileno(self) -> int:
        """For polling; -1 when the kernel has no inotify instance for us."""
        return int(self._inotify.fileno()) if self._inotify is not None else -1

    def ensure(self) -> None:
        """Set the watches where directories or links are other ones by now."""
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
            with contextlib.suppress(OSError):  # not there: NET_S finds it when it is
                watched[int(self._inotify.add_watch(directory, _EVENTS))] = directory
        for descriptor in self._watched.keys() - watched.keys():
            with contextlib.suppress(OSError):  # gone with its directory
                self._inotify.rm_watch(descriptor)
        self._watched = watched

    def read(self, now: float) -> None:
        """Take what the kernel says."""
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
        """When to call `changed`, in monotonic time."""
        if self._due is None:
            return self._net
        if self._writing:
            return min(self._net, max(self._due, min(self._writing.values()) + WRITER_S))
        return min(self._net, self._due)

    def changed(self, now: float) -> bool:
        """Whether the files are other ones than at the last call."""
        self._due, self._net = None, now + NET_S
        self._writing.clear()
        seen = look(*self._given)
        if seen == self._seen:
            return False
        self._seen = seen
        self.ensure()
        if look(*self._given) != seen:  # changed before the new watches were set
            self._due = now + DEBOUNCE_S
        return True

    def close(self) -> None:
        """Give up the descriptor."""
        if self._inotify is not None:
            self._inotify.close()
