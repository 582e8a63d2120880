"""Looks at trees of files, and of cgroups, that change while they are looked at: what goes meanwhile is left out.

`Path.glob` and `Path.rglob` are not for them: in Python 3.11 they fail when a directory goes between being listed and
being read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
UNIFIED = (CGROUPS / "cgroup.controllers").exists()
"""cgroup v2."""


def directories(top: Path, name: str) -> list[Path]:
    """Return the directories of this name below `top`."""
    return [Path(parent, name) for parent, below, _ in os.walk(top) if name in below]


def files(top: Path) -> list[Path]:
    """Regular files at or below `top`."""
    if top.is_file():
        return [top]
    found = (Path(directory, name) for directory, _, names in os.walk(top) for name in names)
    return [path for path in found if path.is_file()]


def content(path: Path) -> bytes:
    """Return a file's content; empty once it is gone."""
    try:
        return path.read_bytes()
    except OSError:  # ENODEV is what a file of a cgroup says that goes
        return b""


def cgroups(name: str) -> Iterator[Path]:
    """The cgroup of this name, or systemd's slice, at the top of each hierarchy, or of the only one there is."""
    for hierarchy in (CGROUPS, *CGROUPS.iterdir()):
        for top in (hierarchy / name, hierarchy / f"{name.replace('-', '_')}.slice"):
            if top.is_dir():
                yield top


def pod_cgroups(name: str) -> Iterator[Path]:
    """Of all pods below the cgroup root of this name, with either driver."""
    for top in cgroups(name):
        for path, below, _ in os.walk(top):
            found = [one for one in below if one.startswith("pod") or ("-pod" in one and one.endswith(".slice"))]
            yield from (Path(path, one) for one in found)
            below[:] = [one for one in below if one not in found]


def pod_cgroup(name: str, uid: str, controller: str) -> Path:
    """A pod's cgroup below the cgroup root of this name. Fails if it is not there."""
    names = (f"pod{uid}", f"-pod{uid.replace('-', '_')}.slice")
    hierarchy = CGROUPS if UNIFIED else CGROUPS / controller
    (found,) = [one for one in pod_cgroups(name) if one.name.endswith(names) and one.is_relative_to(hierarchy)]
    return found


def container_cgroup(pod: Path, identity: str) -> Path:
    """The cgroup of a container, as the runtime names it. Fails if it is not there.

    crun makes one with the container's limits below systemd's scope.
    """
    found = [path for path in pod.iterdir() if path.is_dir() and identity in path.name]
    if len(found) != 1:
        raise FileNotFoundError(f"{identity} has {found} in {pod}")
    below = found[0] / "container"
    return below if below.is_dir() else found[0]


def processes(top: Path) -> set[int]:
    """IDs of those in a cgroup and in all below it."""
    lists = (Path(directory, "cgroup.procs") for directory, _, _ in os.walk(top))
    return {int(line) for path in lists for line in content(path).split()}
