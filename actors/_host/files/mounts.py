"""Reads /proc/self/mountinfo, and mounts and unmounts by mount(2) and umount2(2).

Does not decide what to mount.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from proto.common.machine import mountinfo
from proto.common.machine.mountinfo import Mount

UMOUNT_NOFOLLOW = 8
MNT_FORCE = 1
MNT_DETACH = 2
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096

_libc: Any = None


def mounts_under(directory: str, path: str = mountinfo.SELF) -> list[Mount]:
    """Return the mounts at or below `directory`, a path without links, in mount order. Raises OSError.

    `path` is the table's.
    Only lines that contain the path are parsed: a table may have thousands of lines.
    """
    table = mountinfo.read(path)
    needle = b" " + mountinfo.escaped(directory.rstrip("/"))
    if needle not in table:
        return []
    found = mountinfo.parsed(line for line in table.split(b"\n") if needle in line)
    prefix = directory.rstrip("/") + "/"
    return [mount for mount in found if f"{mount.mount_point}/".startswith(prefix)]


def type_at(path: str) -> str:
    """Return the type of the topmost file system mounted at `path`; empty when there is none.

    The mount table tells it, so a file system that hangs does not block the call.
    """
    real = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"
    types = [mount.fs_type for mount in mounts_under(real) if mount.mount_point == real]
    return types[-1] if types else ""


def mount_id(fd: int) -> int:
    """Return the ID of the mount that an open file is on. Unlike st_dev it tells bind mounts apart. Raises OSError."""
    with open(f"/proc/self/fdinfo/{fd}", "rb", buffering=0) as file:
        for line in file.read().splitlines():
            if line.startswith(b"mnt_id:"):
                return int(line[7:])
    raise OSError(0, f"no mnt_id in /proc/self/fdinfo/{fd}")


def mount_of(path: str) -> Mount:
    """Return the mount that `path` is on, with its links followed. Raises OSError."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        number = b"%d " % mount_id(descriptor)
        lines = [line for line in mountinfo.read().split(b"\n") if line.startswith(number)]
    finally:
        os.close(descriptor)
    for found in mountinfo.parsed(lines):
        return found
    raise OSError(errno.ENOENT, "its mount is not in the mount table", path)


def mount(source: str, target: str, fs_type: str, options: str, flags: int = 0) -> None:
    """Mount a file system. `options` go to the file system, `flags` to the system call. Raises OSError."""
    code = _c().mount(source.encode(), os.fsencode(target), fs_type.encode(), flags, options.encode() or None)
    _check(code, target)


def bind(source: str, target: str) -> None:
    """Bind-mount `source` without the mounts below it. Raises OSError."""
    _check(_c().mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None), target)


def unmount(target: str, flags: int = 0) -> None:
    """Unmount, and follow no link in the last component. Raises OSError: EBUSY while the mount is in use.

    `flags`: MNT_FORCE or MNT_DETACH.
    """
    _check(_c().umount2(os.fsencode(target), UMOUNT_NOFOLLOW | flags), target)


def _check(code: int, target: str) -> None:
    if code != 0:
        import ctypes  # noqa: PLC0415 - see _c

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _c() -> Any:
    # Imported on first use: ctypes takes memory, and most processes never mount anything.
    global _libc  # noqa: PLW0603 - one handle per process
    if _libc is None:
        import ctypes  # noqa: PLC0415

        _libc = ctypes.CDLL(None, use_errno=True)
        text = ctypes.c_char_p
        _libc.mount.argtypes = (text, text, text, ctypes.c_ulong, text)
        _libc.umount2.argtypes = (text, ctypes.c_int)
    return _libc
