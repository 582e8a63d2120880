"""Gives a volume's files to the pod's fsGroup. Blocks: runs in a helper process.

The top directory comes last, so that OnRootMismatch starts over after an interrupted walk. A file system may refuse
chown or chmod for some files or for all: that is logged, and the volume is used all the same. A directory that cannot
be listed is an error. Source: changeFilePermission and walkDeep of pkg/volume/volume_linux.go, and
https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
"""

from __future__ import annotations

import itertools
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
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
        _walk(directory, group, read_only, progress, itertools.count(1), refused)


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


def _walk(
    directory: int, group: int, read_only: bool, progress: Progress, files: Iterator[int], refused: _Refusals
) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            progress(next(files))
            try:
                if entry.is_dir(follow_symlinks=False):
                    with opened(entry.name, DIRECTORY, directory) as child:
                        _walk(child, group, read_only, progress, files, refused)
                else:
                    _set_file(directory, entry.name, group, read_only, refused)
            except FileNotFoundError:
                continue  # a container of the pod removed it meanwhile
    _change(directory, group, read_only, refused)


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
