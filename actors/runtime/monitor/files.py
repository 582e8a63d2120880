"""Reads and writes small files; takes descriptors out of a packet."""

from __future__ import annotations

import _socket
import errno
import os
import stat
import sys

TYPE_CHECKING = False  # see loop.py
if TYPE_CHECKING:
    from typing import Any


def read_text(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(65536).decode("utf-8", "replace").replace("\0", " ").strip()
    except OSError:
        return ""


def start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat; 0 for an ended process."""
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else "0"


def write(path: str, text: str) -> bool:
    """Write a file atomically. Return False without its directory, or on a full disk."""
    content = text.encode()
    try:
        fd = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            whole = os.write(fd, content) == len(content)
        finally:
            os.close(fd)
        if whole:
            os.rename(f"{path}.tmp", path)
        return whole
    except OSError:
        return False


def open_log(path: str) -> int:
    """A descriptor that appends to the regular file `path`, which is created if it is missing. Raises OSError.

    Pods may write to the directories of logs. So the last name may not be a link, and no name after a double slash. A
    FIFO or a lease of a pod must not block the loop: a file is looked at before it is opened.
    """
    above, _, beneath = path.rpartition("//") if "//" in path else path.rpartition("/")
    *directories, name = [part for part in beneath.split("/") if part] or [""]
    here = os.open(above or "/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in directories:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = below
        return _open_log_in(here, name)
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise OSError(error.errno, f"cannot write to the log {path.replace('//', '/')}: {why}") from None
    finally:
        os.close(here)


def _open_log_in(directory: int, name: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    try:
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o640, dir_fd=directory)
    try:
        kind = os.fstat(found).st_mode
        if stat.S_ISLNK(kind):
            raise OSError(errno.ELOOP, "it is a link")
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "it is not a regular file")
        opened = os.open(f"/proc/self/fd/{found}", flags | os.O_NONBLOCK)
    finally:
        os.close(found)
    os.set_blocking(opened, True)
    return opened


def descriptors(ancillary: Any) -> list[int]:
    """The descriptors in a packet's ancillary data."""
    return [
        int.from_bytes(data[at : at + 4], sys.byteorder)
        for level, kind, data in ancillary
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
        for at in range(0, len(data) - 3, 4)
    ]
