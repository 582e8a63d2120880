"""Gives files and all below them one SELinux label. Runs in a process of its own, which a deadline may kill.

No link is followed: each entry is opened in its opened directory. Other mounts below the directory stay as they are.
The topmost one is labelled last: a repeat goes on with what is left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from actors.runtime.helper.kernel import syscalls

ATTRIBUTE = "security.selinux"
_GONE = (errno.ENOENT, errno.ESTALE)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNSUPPORTED = errno.ENOTSUP
"""The file system has one label for all files, as by a mount with `context=`, or none at all."""


def relabel(path: str, label: str) -> None:
    """Label `path`, which has no links, and all below. Does nothing on a file system of one label. Raises OSError."""
    top = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = os.fstat(top).st_mode
        if stat.S_ISLNK(mode) or os.readlink(f"/proc/self/fd/{top}") != path:
            raise OSError(errno.ELOOP, "a link or another directory took its place meanwhile", path)
        wanted = label.encode()
        if stat.S_ISDIR(mode):
            _relabel_below(top, wanted)
        _label(top, wanted)
    except OSError as error:
        if error.errno != _UNSUPPORTED:
            raise
    finally:
        os.close(top)


def _relabel_below(top: int, label: bytes) -> None:
    """Label what is in a directory. One descriptor and no recursion: a pod may nest directories to any depth."""
    mount = _mount_id(top)
    here = os.open(".", _DIRECTORY, dir_fd=top)
    try:
        above = [(_identity(here), _relabel_files(here, mount, label))]
        while above:
            if above[-1][1]:
                deeper = _enter(here, above[-1][1].pop(), mount)
                if deeper >= 0:
                    os.close(here)
                    here = deeper
                    above.append((_identity(here), _relabel_files(here, mount, label)))
                continue
            above.pop()
            if above:
                _label(here, label)
                parent = os.open("..", _DIRECTORY, dir_fd=here)
                os.close(here)
                here = parent
                if _identity(here) != above[-1][0]:
                    raise OSError(errno.EBUSY, "a directory in it was moved while its files got labels")
    finally:
        os.close(here)


def _relabel_files(directory: int, mount: str, label: bytes) -> list[str]:
    """Label all in a directory but the directories in it; return their names. Files that are mounts stay."""
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
                continue
            with contextlib.suppress(FileNotFoundError):
                if (found := _open_file(directory, entry.name, mount)) < 0:
                    continue
                try:
                    _label(found, label)
                finally:
                    os.close(found)
    return names


def _open_file(directory: int, name: str, mount: str) -> int:
    """A descriptor of what is in a directory and no directory; -1 where another mount is on it. Raises OSError."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return syscalls.openat2(directory, name, flags, syscalls.RESOLVE_NO_XDEV)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return -1
        if error.errno != errno.ENOSYS:
            raise
    found = os.open(name, flags, dir_fd=directory)
    if _mount_id(found) == mount:
        return found
    os.close(found)
    return -1


def _enter(directory: int, name: str, mount: str) -> int:
    """A descriptor of a directory in a directory; -1 where it is gone, or another mount is on it."""
    try:
        found = os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as error:
        if error.errno in (*_GONE, errno.ENOTDIR, errno.ELOOP):
            return -1
        raise
    if _mount_id(found) == mount:
        return found
    os.close(found)
    return -1


def _identity(directory: int) -> tuple[int, int]:
    status = os.fstat(directory)
    return status.st_dev, status.st_ino


def _label(descriptor: int, label: bytes) -> None:
    """The link in /proc leads to the file itself, also to a symbolic link."""
    place = f"/proc/self/fd/{descriptor}"
    with contextlib.suppress(OSError):
        if os.getxattr(place, ATTRIBUTE).rstrip(b"\0") == label:
            return
    try:
        os.setxattr(place, ATTRIBUTE, label)
    except OSError as error:
        if error.errno not in _GONE:
            raise


def _mount_id(descriptor: int) -> str:
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        for line in file:
            if line.startswith("mnt_id:"):
                return line[7:].strip()
    return ""
