"""Gives a volume's files to the pod's fsGroup. Blocks: runs in a helper process.

The top directory comes last, so that OnRootMismatch starts over after an interrupted walk. A file system may refuse
chown or chmod for some files or for all: that is logged, and the volume is used all the same. A directory that cannot
be listed is an error. Source: changeFilePermission and walkDeep of pkg/volume/volume_linux.go, and
https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from actors.volume.ops.commands import Progress
from actors.volume.ops.inside import DIRECTORY, PATH, opened
from actors.volume.steps.errors import go_text
from proto.common.safe_text import one_line

log = logging.getLogger(__name__)

Policy = Literal["Always", "OnRootMismatch"]

_WRITABLE = 0o660
_READ_ONLY = 0o440
_EXECUTE = 0o110


def wanted_mode(mode: int, *, read_only: bool) -> int:
    """Permissions for a file or directory with this st_mode: its own, plus the group's."""
    added = _READ_ONLY if read_only else _WRITABLE
    if stat.S_ISDIR(mode):
        added |= _EXECUTE | stat.S_ISGID
    return stat.S_IMODE(mode) | added


def set_ownership(
    directory: int, group: int, *, read_only: bool, policy: Policy = "Always", progress: Progress = int
) -> None:
    """Change the open directory and everything below it, links themselves, never their targets.

    Raises OSError when something cannot be opened or listed.
    """
    if policy == "OnRootMismatch" and matches(directory, group, read_only=read_only):
        return
    with _refusals(directory) as refused:
        _Walk(directory, group, read_only, progress, refused).run()


def set_directory(directory: int, group: int, *, read_only: bool) -> None:
    """Change the open directory alone."""
    with _refusals(directory) as refused:
        _change(directory, group, read_only, refused)


def matches(directory: int, group: int, *, read_only: bool) -> bool:
    """True when the open directory is as `set_directory` leaves it."""
    status = os.fstat(directory)
    wanted = wanted_mode(status.st_mode, read_only=read_only)
    return status.st_gid == group and stat.S_IMODE(status.st_mode) == wanted


class _Refusals:
    """Failed calls of chown and chmod in one volume."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, call: str, fd: int, error: OSError) -> None:
        """Count a call; `fd` of its file."""
        if not self.count:
            self.first = go_text(call, _path_of(fd), error)
        self.count += 1


@contextmanager
def _refusals(directory: int) -> Iterator[_Refusals]:
    # One line for a volume: a file system without groups refuses the calls for each of its files.
    refused = _Refusals()
    try:
        yield refused
    finally:
        if refused.count:
            text = "cannot give all files of %s to the fsGroup: chown or chmod failed %d times, first: %s"
            log.warning(text, one_line(_path_of(directory)), refused.count, one_line(refused.first))


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


class _Level:
    """A directory on the way from the top to the present one."""

    __slots__ = ("ahead", "inode", "name")

    def __init__(self, name: str, inode: tuple[int, int]) -> None:
        self.name = name
        self.inode = inode
        """Device and number."""
        self.ahead: list[str] = []
        """Names of the directories in it that are still to be entered."""


class _Walk:
    """Changes all files below an open directory, and each directory after its content.

    A container may nest directories deeper than a process may open files or call functions. So at any depth only the
    present directory is open. The way back is `..`. It leads elsewhere once the directory was moved. Then the way is
    taken again from the top, as far as it still exists.
    """

    def __init__(self, top: int, group: int, read_only: bool, progress: Progress, refused: _Refusals) -> None:
        self._top = self._here = top
        self._group, self._read_only, self._progress, self._refused = group, read_only, progress, refused
        self._levels = [_Level("", _inode(top))]
        self._files = 0

    def run(self) -> None:
        """Change everything. Raises OSError when something cannot be opened or listed."""
        try:
            self._change_files()
            while self._levels:
                self._progress(self._files)
                if self._enter_next():
                    self._change_files()
                else:
                    _change(self._here, self._group, self._read_only, self._refused)
                    self._leave()
        finally:
            self._go(self._top)

    def _change_files(self) -> None:
        """Change the files in the present directory, and note the directories in it."""
        with os.scandir(self._here) as entries:
            for entry in entries:
                self._files += 1
                self._progress(self._files)
                with suppress(FileNotFoundError):  # a container of the pod removed it meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        self._levels[-1].ahead.append(entry.name)
                    else:
                        _set_file(self._here, entry.name, self._group, self._read_only, self._refused)

    def _enter_next(self) -> bool:
        ahead = self._levels[-1].ahead
        while ahead:
            name = ahead.pop()
            with suppress(FileNotFoundError):  # removed meanwhile
                child = os.open(name, DIRECTORY, dir_fd=self._here)
                self._levels.append(_Level(name, _inode(child)))
                self._go(child)
                return True
        return False

    def _leave(self) -> None:
        self._levels.pop()
        if len(self._levels) < 2:
            self._go(self._top)
            return
        with suppress(FileNotFoundError):  # removed meanwhile
            parent = os.open("..", DIRECTORY, dir_fd=self._here)
            if _inode(parent) == self._levels[-1].inode:
                self._go(parent)
                return
            os.close(parent)
        self._return()

    def _return(self) -> None:
        way, self._levels = self._levels[1:], self._levels[:1]
        self._go(self._top)
        with suppress(FileNotFoundError, NotADirectoryError):  # the rest of the way was removed or moved
            for level in way:
                self._progress(self._files)
                child = os.open(level.name, DIRECTORY, dir_fd=self._here)
                if _inode(child) != level.inode:
                    os.close(child)
                    return
                self._levels.append(level)
                self._go(child)

    def _go(self, directory: int) -> None:
        if self._here not in (self._top, directory):
            os.close(self._here)
        self._here = directory


def _inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _set_file(directory: int, name: str, group: int, read_only: bool, refused: _Refusals) -> None:
    # By descriptor: between two calls by name, a container could replace the file by a link to anywhere.
    with opened(name, PATH, directory) as fd:
        _change(fd, group, read_only, refused)


def _change(fd: int, group: int, read_only: bool, refused: _Refusals) -> None:
    # The mode is read first: chown(2) clears the setuid and setgid bits of a file. A descriptor with O_PATH has only
    # this path for chown and chmod, which changes a link itself.
    path, mode = f"/proc/self/fd/{fd}", os.fstat(fd).st_mode
    try:
        os.chown(path, -1, group)
    except OSError as error:
        refused.add("chown", fd, error)
    if stat.S_ISLNK(mode):
        return
    try:
        os.chmod(path, wanted_mode(mode, read_only=read_only))
    except OSError as error:
        refused.add("chmod", fd, error)
