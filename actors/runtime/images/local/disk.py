"""Removing trees and syncing, for the store."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import stat
from pathlib import Path

_numbers = itertools.count()


def discard(path: Path, trash: Path) -> None:
    """Remove a tree. It is gone from `path` at once; what a kill leaves of it is in `trash`."""
    doomed = trash / f"{os.getpid()}-{next(_numbers)}"
    try:
        path.rename(doomed)
    except FileNotFoundError:
        return
    remove_tree(doomed)


def remove_tree(path: Path) -> None:
    """Remove a tree, which follows no link. What cannot be removed stays for the next time."""
    shutil.rmtree(path, ignore_errors=True)
    if path.is_dir() and not path.is_symlink():
        for directory, names, _ in os.walk(path):  # directories without the bits to look into them
            for name in names:
                inner = os.path.join(directory, name)
                if stat.S_ISDIR(os.lstat(inner).st_mode):
                    os.chmod(inner, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        path.unlink()


def sync_file_system(path: Path) -> None:
    """Have all that was written to the file system of `path` on its disk: a power cut keeps the order then."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def usage(path: Path) -> tuple[int, int]:
    """Bytes on the disk and inodes of a tree; each file of several names once."""
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
