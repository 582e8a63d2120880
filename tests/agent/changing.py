"""Looks at trees of files, and of cgroups, that change while they are looked at: what goes meanwhile is left out.

`Path.glob` and `Path.rglob` are not for them: in Python 3.11 they fail when a directory goes between being listed and
being read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


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
    """The cgroup of this name at the top of each hierarchy, or of the only one there is."""
    for hierarchy in (CGROUPS, *CGROUPS.iterdir()):
        if (hierarchy / name).is_dir():
            yield hierarchy / name


def processes(top: Path) -> set[int]:
    """IDs of those in a cgroup and in all below it."""
    lists = (Path(directory, "cgroup.procs") for directory, _, _ in os.walk(top))
    return {int(line) for path in lists for line in content(path).split()}
