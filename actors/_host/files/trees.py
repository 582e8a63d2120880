"""Removes directory trees that containers could fill. Blocks.

No link is followed: each directory is opened by its name in its parent's descriptor. A tree may be deeper than paths,
open files or calls of Python may go. So what is too deep is moved to the top first.
"""

from __future__ import annotations

import errno
import os
import secrets
import time

_DEEPEST = 16
"""Directories below this depth are moved up first. Two descriptors are open for each level above."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_RETRIES = 8
"""Passes that follow a failed pass. A full disk needs a few; a process that still writes would need no end."""
_MOST_S = 100.0
"""A tree that a process may still write to ends an attempt: it could grow as fast as it is removed."""
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


def remove(path: str | os.PathLike[str], *, dir_fd: int | None = None, most_s: float | None = None) -> None:
    """Remove a file, a link, or a directory with all below it. Idempotent.

    `most_s` is the time of this attempt; math.inf is for a tree that no process writes to, which ends by itself.

    What cannot be removed stays, and all else goes. Mounts and their content stay: the kernel refuses to remove a mount
    point, before it looks whether it is empty. Raises OSError, the first one.
    """
    name = os.fspath(path)
    try:
        _remove_here(name, dir_fd, _MOST_S if most_s is None else most_s)
    except FileNotFoundError:
        return


def _remove_here(name: str, dir_fd: int | None, most_s: float) -> None:
    try:
        os.rmdir(name, dir_fd=dir_fd)
    except NotADirectoryError:
        os.unlink(name, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in _NOT_EMPTY:
            raise
        top = _open(name, dir_fd)
        try:
            _Removal(top, most_s).run()
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=dir_fd)


class _Removal:
    """Removes the content of one directory."""

    def __init__(self, top: int, most_s: float) -> None:
        self._top = top
        self._removed = self._moved = 0
        self._error: OSError | None = None
        self._late = False
        self._most_s = most_s
        self._deadline = time.monotonic() + most_s

    def run(self) -> None:
        """Pass through the tree until one changes nothing, or for too long. Raises OSError."""
        retries = 0
        while True:
            # A pass may not see what it moved up, and on a full disk it moves nothing before it has removed something.
            self._removed = self._moved = 0
            self._error = None
            self._clear(self._top, 0)
            if self._late:  # what is not empty for that reason is no error of its own
                raise OSError(
                    errno.EBUSY,
                    f"{self._most_s:g} s did not suffice; the next attempt goes on, or end what still writes there",
                )
            retries += self._error is not None
            if not self._moved and not (self._removed and self._error and retries <= _MOST_RETRIES):
                break
        if self._error is not None:
            raise self._error

    def _clear(self, directory: int, depth: int) -> None:
        with os.scandir(directory) as entries:
            for entry in entries:
                if self._late or time.monotonic() > self._deadline:
                    self._late = True
                    return
                try:
                    self._remove(directory, entry, depth)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._error = self._error or error

    def _remove(self, directory: int, entry: os.DirEntry[str], depth: int) -> None:
        name = entry.name
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(name, dir_fd=directory)
        elif not self._remove_empty(directory, name):
            if depth == _DEEPEST:
                self._move_up(directory, name)
                return
            child = _open(name, directory)
            try:
                self._clear(child, depth + 1)
            finally:
                os.close(child)
            os.rmdir(name, dir_fd=directory)
        self._removed += 1

    def _remove_empty(self, directory: int, name: str) -> bool:
        try:
            os.rmdir(name, dir_fd=directory)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            return False
        return True

    def _move_up(self, directory: int, name: str) -> None:
        target = f".removed-{secrets.token_hex(8)}"
        try:
            os.rename(name, target, src_dir_fd=directory, dst_dir_fd=self._top)
        except PermissionError:
            _allow(name, directory)
            os.rename(name, target, src_dir_fd=directory, dst_dir_fd=self._top)
        self._moved += 1


def _open(name: str, dir_fd: int | None) -> int:
    """Open a directory, with all rights for its owner where this process needs them. Raises OSError."""
    try:
        directory = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    except PermissionError:
        _allow(name, dir_fd)
        directory = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    try:
        if os.fstat(directory).st_mode & 0o700 != 0o700:
            os.fchmod(directory, 0o700)
    except OSError:
        os.close(directory)
        raise
    return directory


def _allow(name: str, dir_fd: int | None) -> None:
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.chmod(f"/proc/self/fd/{path}", 0o700)  # chmod(2) takes no descriptor with O_PATH
    finally:
        os.close(path)
