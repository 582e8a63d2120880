"""Removes and measures directory trees, and syncs file systems."""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
from pathlib import Path

from actors._host.files import trees

_numbers = itertools.count()
log = logging.getLogger(__name__)


def discard(path: Path, trash: Path) -> None:
    """Remove a tree: rename it into `trash` at once, then delete it there. A kill leaves the rest in `trash`."""
    doomed = trash / f"{os.getpid()}-{next(_numbers)}"
    try:
        path.rename(doomed)
    except FileNotFoundError:
        return
    remove_tree(doomed)


def remove_tree(path: Path) -> None:
    """Remove a tree without following links. What cannot be removed is logged and stays for the next attempt."""
    try:
        trees.remove(path)
    except OSError as error:
        log.warning("cannot remove all of %s: %s", path, error)


def remove_all(directory: Path) -> None:
    """Remove all that is in `directory`, at a start. No leftover keeps the others, or the start, from going on."""
    for path in list(directory.iterdir()):
        try:
            remove_tree(path)
        except Exception:
            log.exception("cannot remove %s; trying again at the next start", path)


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


def usage(path: Path) -> tuple[int, int]:
    """Bytes on the disk and inodes of a tree; counts a file with several names once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    todo = [str(path)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    key = (status.st_dev, status.st_ino)
                    if key in seen:
                        continue
                    seen.add(key)
                    total += status.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except FileNotFoundError:
            continue
    return total, len(seen)
