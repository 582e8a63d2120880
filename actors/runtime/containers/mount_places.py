"""Finds where a mount's path leads in a container, by links in its root file system and in its volumes.

An OCI runtime that follows such links, as crun does, would mount a volume over the container's /proc. AppArmor and
SELinux labels written there are lost then. This check comes before the mounts, so a volume can still change after it;
runc and our helper check while they mount.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from posixpath import dirname, join, normpath

from actors.runtime.helper.plan import covers_proc
from actors.runtime.oci.spec.mounts import BadMount

MOST_LINKS = 40
"""Links on the way to one place, the kernel's limit."""


def require_proc_uncovered(root: str, mounts: Iterable[tuple[str, str]]) -> None:
    """Raise BadMount for a mount that would hide the container's /proc.

    `root` is the root file system's directory on the machine. `mounts` are (path in the container, source), outer
    mounts first.
    """
    places = [("/", root)]
    for path, source in mounts:
        place = place_of(path, places)
        if covers_proc(place, source):
            raise BadMount(f"cannot mount at {path}: it leads to {place}, and would hide the container's /proc")
        places.append((place, source))


def place_of(path: str, places: list[tuple[str, str]]) -> str:
    """The place of `path` in a container, without links. Raises BadMount for too many links.

    `places` are (place, directory on the machine), the root first; a later one covers earlier ones.
    """
    left, at, links = path.split("/")[::-1], "/", 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = dirname(at)
            continue
        target = _link(_on_machine(join(at, name), places))
        if target is None:
            at = join(at, name)
            continue
        links += 1
        if links > MOST_LINKS:
            raise BadMount(f"cannot mount at {path}: more than {MOST_LINKS} links lead there")
        at = "/" if target.startswith("/") else at
        left += target.split("/")[::-1]
    return normpath(at)


def _on_machine(place: str, places: list[tuple[str, str]]) -> str:
    for mounted, directory in reversed(places):
        base = mounted.rstrip("/")
        if place == base:  # the mount itself, not a link that it covers
            return join(directory, ".")
        if place.startswith(f"{base}/"):
            return directory + place.removeprefix(base)
    raise ValueError(f"no root among the places of {place}")


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # no link, or nothing
        return None
