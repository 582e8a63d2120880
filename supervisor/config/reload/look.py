"""Looks at the files of --config and --config-dir, and sets inotify watches: all calls that a file system can hold up.

The parent starts it as a process of its own (`reader.Look`), since a network or FUSE file system that hangs would stop
the parent's loop. The watches go to the parent's inotify descriptor. It imports little, because it runs every 30 s.
Reads no file.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

from supervisor.config.kubeletconfig.problems import file_name

Seen = tuple[tuple[str, int, int, int], ...]
"""Path as `file_name` gives it, inode, mtime in ns and size of every file; equal when nothing has changed."""

ALARM_S = 20
"""Ends this process when its parent has died. The parent waits for less."""
_MAX_LINKS = 40  # the kernel's own limit, path_resolution(7)
_MAX_FILES = 1000
_DEPTH = 8


class Request(TypedDict):
    """A look; the paths as given."""

    config: str
    config_dir: str
    seen: Seen
    """The parent's last result."""
    inotify: int
    """The descriptor; -1 for none."""
    mask: int
    watched: Sequence[int]
    """The present watches."""
    first: bool
    """There are no watches yet."""


class Found(TypedDict):
    """The result. `places` is None when the watches are as before."""

    seen: Seen
    places: Places | None


class Places(TypedDict):
    """The watches. Names are as `file_name` gives them: JSON has no bytes that are not UTF-8."""

    watched: dict[str, str]
    """Directory by watch descriptor."""
    names: Sequence[tuple[str, str]]
    """Directory and name of the files and of every link on the way to them."""
    top: str
    """The resolved path of --config-dir."""
    moved: bool
    """The files changed before the watches were set."""


def main(arguments: Sequence[str]) -> int:
    """Read the request from one descriptor, write the result to another; the exit code is 0."""
    signal.alarm(ALARM_S)
    request, result = map(int, arguments)
    with open(request, "rb") as file:
        asked: Any = json.load(file)
    found = look({**asked, "seen": seen_of(asked["seen"])})  # type: ignore[typeddict-item]
    with os.fdopen(result, "w", encoding="ascii") as output:
        json.dump(found, output)
    return 0


def seen_of(plain: Any) -> Seen:
    """From JSON, which has no tuples."""
    return tuple((path, inode, mtime, size) for path, inode, mtime, size in plain)


def look(request: Request) -> Found:
    """Compare the files with what the parent knows. If they differ, directories or links may: set the watches anew."""
    given = request["config"], request["config_dir"]
    seen = stat_files(*given)
    if seen == request["seen"] and not request["first"]:
        return {"seen": seen, "places": None}
    found = _watch(request)
    found["moved"] = stat_files(*given) != seen
    return {"seen": seen, "places": found}


def stat_files(config: str, config_dir: str) -> Seen:
    """The present `stat` of every file. A missing file has zeros; nothing is raised."""
    paths = [config] if config else []
    if config_dir:
        paths += [config_dir, *(path for directory in _directories(config_dir) for path in _files(directory))]
    return tuple(_stat(path) for path in paths[:_MAX_FILES])


def _stat(path: str) -> tuple[str, int, int, int]:
    name = file_name(path)
    try:
        found = os.stat(path)
    except OSError:
        return name, 0, 0, 0
    if os.path.isdir(path):
        return name, found.st_ino, 0, 0
    return name, found.st_ino, found.st_mtime_ns, found.st_size


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


def _watch(request: Request) -> Places:
    """Set the watches that are needed now, and remove the others."""
    config_dir, top = request["config_dir"], ""
    wanted: set[str] = set()
    names: set[tuple[str, str]] = set()
    for path in (request["config"], config_dir):
        if path:
            names |= places(path)
            wanted |= {directory for directory, _ in places(path)}
    if config_dir:
        top = os.path.realpath(config_dir)
        wanted |= set(_directories(top))
        for path in filter(os.path.islink, _files(config_dir)):
            names |= places(path)
            wanted |= {directory for directory, _ in places(path)}
    watched = _set(request, wanted) if request["inotify"] >= 0 else {}
    return {
        "watched": {number: file_name(directory) for number, directory in watched.items()},
        "names": sorted((file_name(directory), file_name(name)) for directory, name in names),
        "top": file_name(top),
        "moved": False,
    }


def _set(request: Request, wanted: set[str]) -> dict[str, str]:
    import ctypes  # noqa: PLC0415 - not in every run

    libc, inotify = ctypes.CDLL(None), request["inotify"]
    watched: dict[str, str] = {}
    for directory in sorted(wanted):
        number = libc.inotify_add_watch(inotify, os.fsencode(directory), request["mask"])
        if number >= 0:  # a missing directory is found by the next look
            watched[str(number)] = directory
    for number in request["watched"]:
        if str(number) not in watched:
            libc.inotify_rm_watch(inotify, number)  # an error: it is gone with its directory
    return watched
