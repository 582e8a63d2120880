"""Refuses a release that other users could change: its code runs with the agent's rights, now and at each restart."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator

from supervisor.core.upgrade.release import Release

_LINKS = 40
"""The most links on one way, as in the kernel."""


def objection(release: Release) -> str:
    """The reason not to run a release; empty: none. Paths that this process runs already are left out."""
    present = {sys.executable, *sys.path}
    for path in (release.place or release.python, release.python, *release.path):
        if path not in present and (found := exposed(path)):
            return found
    return ""


def exposed(path: str) -> str:
    """The first place on the way to a path that another user could change, with the reason; empty: none.

    A sticky directory of root may be on the way, because what is in it has an owner of its own. It is no release.
    """
    if not os.path.isabs(path):
        return f"{path!r} is not an absolute path"
    try:
        for place, info, last in _way(path):
            if info.st_uid not in {0, os.geteuid()}:
                return f"{place} belongs to uid {info.st_uid}; chown it to root"
            sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX and info.st_uid == 0 and not last
            if info.st_mode & 0o022 and not stat.S_ISLNK(info.st_mode) and not sticky:
                return f"{place} has mode {stat.S_IMODE(info.st_mode):04o}; others may change it: chmod go-w it"
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        return f"cannot look at {path!r}: {error}"
    return ""


def _way(path: str) -> Iterator[tuple[str, os.stat_result, bool]]:
    """Each directory and link that the kernel passes, and the end of the way."""
    waiting = path.split("/")[::-1]
    at, links = "/", 0
    yield at, os.lstat(at), False
    while waiting:
        name = waiting.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        place = os.path.join(at, name)
        info = os.lstat(place)
        yield place, info, not any(waiting) and not stat.S_ISLNK(info.st_mode)
        if not stat.S_ISLNK(info.st_mode):
            at = place
            continue
        links += 1
        if links > _LINKS:
            raise OSError(f"more than {_LINKS} links")
        target = os.readlink(place)
        at = "/" if target.startswith("/") else at
        waiting += target.split("/")[::-1]
