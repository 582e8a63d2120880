"""Removes and measures directory trees, and syncs file systems."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import stat
from pathlib import Path

_numbers = itertools.count()


def discard(path: Path, trash: Path) -> None:
    """Remove a tree: rename it into `trash` at once, then delete it there. A kill leaves the rest in `trash`."""
    doomed = trash / f"{os.getpid()}-{next(_numbers)}"
    try:
        path.rename(doomed)
    except FileNotFoundError:
        return
    remove_tree(doomed)


def remove_tree(path: Path) -> None:
    """Remove a tree without following links. Files that cannot be removed stay for the next attempt."""
    shutil.rmtree(path, ignore_errors=True)
    if path.is_dir() and not path.is_symlink():
        for directory, names, _ in os.walk(path):  # directories without read or search permission
            for name in names:
                inner = os.path.join(directory, name)
                if stat.S_ISDIR(os.lstat(inner).st_mode):
                    os.chmod(inner, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        path.unlink()


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
