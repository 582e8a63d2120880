"""Opens and reads files that a container can write to.

The container may have replaced such a file by a link, a FIFO or a device. It may have made it sparse and huge, or may
hold a lease on it. These functions open regular files only, follow no link, never block and read at most a given bound.
The directories above a file are expected to be root's; `beneath` names the first untrusted directory.
"""

from __future__ import annotations

import errno
import os
import stat

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, beneath: str | None = None) -> int:
    """Return a descriptor of the regular file at `path`, opened with `flags`.

    With `beneath`, `path` is relative to that directory, and no component may be a link or `..`. Without it, only the
    last component may not be a link. Raises OSError: ELOOP for a link, EISDIR for a directory, EWOULDBLOCK for a file
    with a lease. EINVAL: a FIFO, a device or a socket.
    """
    parent, name = _parent(os.fspath(path), beneath)
    try:
        found = os.open(name, _STEP, dir_fd=parent)
    finally:
        if parent is not None:
            os.close(parent)
    try:
        _check_regular(os.fstat(found).st_mode, os.fspath(path))
        # Through its O_PATH descriptor: opening a FIFO or a device by name can have side effects.
        opened = os.open(f"/proc/self/fd/{found}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(found)
    return opened


def _parent(path: str, beneath: str | None) -> tuple[int | None, str]:
    """Return a descriptor of the last component's directory (None without `beneath`) and the name to open there."""
    if beneath is None:
        return None, path
    *above, name = [part for part in path.split("/") if part not in ("", ".")] or [""]
    if ".." in (*above, name) or not name:
        raise OSError(errno.EXDEV, "not a path beneath its directory", path)
    here = os.open(beneath, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in above:
        try:
            below = os.open(part, _STEP | os.O_DIRECTORY, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here, name


def _check_regular(mode: int, path: str) -> None:
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "is a symbolic link", path)
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is not a regular file", path)


def read_regular(path: str | os.PathLike[str], limit: int, *, beneath: str | None = None) -> bytes:
    """Return the content of a file of at most `limit` bytes. Raises OSError like `open_regular`, and EFBIG."""
    descriptor = open_regular(path, beneath=beneath)
    try:
        return read_bounded(descriptor, limit, os.fspath(path))
    finally:
        os.close(descriptor)


def read_bounded(descriptor: int, limit: int, path: str) -> bytes:
    """Return the rest of an open file. Raises OSError EFBIG beyond `limit` bytes. Also reads /proc."""
    content = bytearray()
    while part := os.read(descriptor, min(limit + 1 - len(content), 64 * 1024)):
        content += part
        if len(content) > limit:
            raise OSError(errno.EFBIG, f"is larger than {limit} bytes", path)
    return bytes(content)


def read_tail(path: str | os.PathLike[str], limit: int) -> tuple[bytes, bool]:
    """Return the last `limit` bytes of a file, and True when these are all. Raises OSError like `open_regular`."""
    descriptor = open_regular(path)
    try:
        start = max(0, os.fstat(descriptor).st_size - limit)
        return os.pread(descriptor, limit, start), start == 0
    finally:
        os.close(descriptor)


def write_in_place(path: str | os.PathLike[str], content: bytes, mode: int) -> None:
    """Set the content and mode of a file, and keep its inode, because a container may have mounted it.

    A file with that content stays as it is. A missing file is created. Raises OSError like `open_regular`.
    """
    try:
        descriptor = open_regular(path, os.O_RDWR)
    except FileNotFoundError:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, mode)
    else:
        status = os.fstat(descriptor)
        if status.st_size == len(content) and os.pread(descriptor, len(content) + 1, 0) == content:
            os.close(descriptor)
            return
    try:
        os.ftruncate(descriptor, 0)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fchmod(descriptor, mode)  # os.open applied the umask
    finally:
        os.close(descriptor)
