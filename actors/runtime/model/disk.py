"""Removes and measures directory trees, and syncs file systems."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import secrets
import sys
from pathlib import Path

from actors._host.files import trees
from actors._host.files.disk_use import DiskUse, Walk

log = logging.getLogger(__name__)


def discard(path: Path, trash: Path) -> None:
    """Remove a tree: rename it into `trash` at once, then delete it there. A kill leaves the rest in `trash`."""
    doomed = trash / new_name()
    try:
        path.rename(doomed)
    except FileNotFoundError:
        return
    remove_tree(doomed)


def new_name() -> str:
    """A name that no leftover in the trash has, which may be of a process with the same pid."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def remove_tree(path: Path, most_s: float | None = None) -> None:
    """Remove a tree without following links. What cannot be removed is logged and stays for the next attempt.

    `most_s` is as in `trees.remove`.
    """
    try:
        trees.remove(path, most_s=most_s)
    except OSError as error:
        log.warning("cannot remove all of %s: %s", path, error)


def remove_all(directory: Path) -> None:
    """Remove all that is in `directory`. No leftover keeps the others from going."""
    for path in list(directory.iterdir()):
        try:
            remove_tree(path)
        except Exception:
            log.exception("cannot remove %s; trying again later", path)


def sync_file_system(path: Path) -> None:
    """Write the file system of `path` to its disk, so that a power cut loses nothing earlier."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def usage(path: Path) -> DiskUse:
    """Use of a whole tree that no container writes to; counts a file with several names once."""
    return Walk(math.inf, sys.maxsize).measure(str(path))
