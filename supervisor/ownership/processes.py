"""Reads facts of other processes from /proc, each bounded. An unreadable or ended process gives an empty answer.

A path of another process is not trusted: `in_root` resolves it within that process's root directory, so that a link
there cannot lead to a file of ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proto.common.machine import procfs
from supervisor.ownership.policy import Process

MAX_READ = 65_536
"""Limit in bytes of one file in /proc/PID."""
MAX_FDS = 65_536

_LINKS = {"cwd": "working directory", "root": "root directory", "exe": "program"}
_OPENAT2 = 437  # the same number on every architecture, since Linux 5.6
_RESOLVE_IN_ROOT = 0x10


class Inode(NamedTuple):
    """The identity of a directory on this machine, independent of paths."""

    device: int
    number: int


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def pids() -> list[int]:
    """The pids of all visible processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(pid: int, name: str, limit: int = MAX_READ) -> bytes:
    """The first `limit` bytes of /proc/PID/NAME. Of tables, the kernel gives at most a page for each read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def name(pid: int) -> str:
    """The process's name as `ps` shows it."""
    return os.fsdecode(read(pid, "comm")).rstrip("\n")


def arguments(pid: int) -> list[str]:
    """The command line, cut at the limit."""
    return [os.fsdecode(word) for word in read(pid, "cmdline").split(b"\0") if word]


def uid(pid: int) -> int:
    """The owner; -1 for a process that has ended."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def alive(pid: int) -> bool:
    """True for a running process, False for a zombie."""
    state = read(pid, "stat").rpartition(b")")[2].split()[:1]
    return bool(state) and state[0] not in (b"Z", b"X")


def inode_of(path: str | int) -> Inode | None:
    """The inode behind a path or descriptor."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return Inode(found.st_dev, found.st_ino)


def descriptors(pid: int) -> Iterator[tuple[str, str]]:
    """The open files of a process: the path of each link in /proc, and its target."""
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)[:MAX_FDS]
    except OSError:
        return
    for one in names:
        with contextlib.suppress(OSError):
            yield f"{directory}/{one}", os.readlink(f"{directory}/{one}")


def users(path: str) -> Iterator[tuple[int, str]]:
    """Each visible process that uses a file or directory at `path` or below, and how. Follows no link."""
    for pid in pids():
        links = [(f"/proc/{pid}/{one}", _LINKS[one]) for one in _LINKS]
        for link, how in links:
            with contextlib.suppress(OSError):
                if _is_below(os.readlink(link), path):
                    yield pid, how
        for _, target in descriptors(pid):
            if _is_below(target, path):
                yield pid, f"open file {target}"


def _is_below(target: str, path: str) -> bool:
    return target == path or target.startswith(f"{path}/")


def ancestors(pid: int) -> set[int]:
    """The process and all its ancestors."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        pid = procfs.parent(pid)
    return found


def in_root(pid: int, path: str, flags: int = os.O_PATH) -> int:
    """Open the file that the process sees at `path`. Raises OSError."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
        libc = ctypes.CDLL(None, use_errno=True)
        encoded = os.fsencode(path)
        if b"\0" in encoded:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        found = libc.syscall(_OPENAT2, root, encoded, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
        if found < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
        return int(found)
    finally:
        os.close(root)


def inode_in(pid: int, path: str) -> Inode | None:
    """The inode of the file that the process sees at `path`.

    An ordinary user may not open another process's root directory. Then the path is resolved in our own.
    """
    try:
        descriptor = in_root(pid, path)
    except PermissionError:
        return inode_of(path)
    except OSError:
        return None
    try:
        return inode_of(descriptor)
    finally:
        os.close(descriptor)


def text_in(pid: int, path: str, limit: int) -> bytes:
    """The content of a regular file as the process sees it; empty if it is missing or larger than `limit`."""
    try:
        # Not blocking: a FIFO or device at the path must not block the start.
        descriptor = in_root(pid, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        if not os.path.isfile(descriptor) or os.fstat(descriptor).st_size > limit:
            return b""
        try:
            return file.read(limit)
        except OSError:
            return b""


def describe(pid: int) -> Process:
    """The process for a message, with the run directory if it is a supervisor."""
    return Process(pid, name(pid), uid(pid), run_dir(pid))


def run_dir(pid: int) -> str:
    """The run directory of a supervisor, found by its open lock file; empty for other processes."""
    if not procfs.title(pid).startswith("supervisor"):
        return ""
    for link, target in descriptors(pid):
        if target.endswith("/lock"):
            with contextlib.suppress(OSError, ValueError):
                if int(Path(link).read_text()[:16]) == pid:
                    return os.path.dirname(target)
    return ""
