"""Gives a volume's files to the pod's fsGroup. Blocks: runs in a helper process.

The top directory comes last, so that OnRootMismatch starts over after an interrupted walk. Source: SetVolumeOwnership
of pkg/volume/volume_linux.go and https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from typing import Literal

from actors.volume.ops.commands import Progress
from actors.volume.ops.inside import DIRECTORY, PATH, opened

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
    """Change the open directory and everything below it, links themselves, never their targets. Raises OSError."""
    if policy == "OnRootMismatch" and matches(directory, group, read_only=read_only):
        return
    _walk(directory, group, read_only, progress, itertools.count(1))


def set_directory(directory: int, group: int, *, read_only: bool) -> None:
    """Change the open directory alone. Raises OSError."""
    _change(directory, group, read_only=read_only)


def matches(directory: int, group: int, *, read_only: bool) -> bool:
    """True when the open directory is as `set_directory` leaves it."""
    status = os.fstat(directory)
    wanted = wanted_mode(status.st_mode, read_only=read_only)
    return status.st_gid == group and stat.S_IMODE(status.st_mode) == wanted


def _walk(directory: int, group: int, read_only: bool, progress: Progress, files: Iterator[int]) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            progress(next(files))
            try:
                if entry.is_dir(follow_symlinks=False):
                    with opened(entry.name, DIRECTORY, directory) as child:
                        _walk(child, group, read_only, progress, files)
                else:
                    _set_file(directory, entry.name, group, read_only=read_only)
            except FileNotFoundError:
                continue  # a container of the pod removed it meanwhile
    set_directory(directory, group, read_only=read_only)


def _set_file(directory: int, name: str, group: int, *, read_only: bool) -> None:
    # By descriptor: between two calls by name, a container could replace the file by a link to anywhere.
    with opened(name, PATH, directory) as fd:
        _change(fd, group, read_only=read_only)


def _change(fd: int, group: int, *, read_only: bool) -> None:
    # The mode is read first: chown(2) clears the setuid and setgid bits of a file. A descriptor with O_PATH has only
    # this path for chown and chmod, which changes a link itself.
    path, mode = f"/proc/self/fd/{fd}", os.fstat(fd).st_mode
    os.chown(path, -1, group)
    if not stat.S_ISLNK(mode):
        os.chmod(path, wanted_mode(mode, read_only=read_only))
