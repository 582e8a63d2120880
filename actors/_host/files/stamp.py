"""Tells whether a file has changed since the last look, without reading it."""

from __future__ import annotations

import os

Stamp = tuple[int, int, int, int]
"""Device, inode, size and mtime in nanoseconds."""


def stamp(path: str | os.PathLike[str]) -> Stamp | None:
    """A value that changes with the content of the file, through links; None without the file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
