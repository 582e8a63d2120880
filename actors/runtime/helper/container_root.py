"""Looks up paths in a container's root: once, checked, and used through their descriptor from then on.

The image, the pod's volumes and other containers decide where a path leads, and may change it during the lookup. So
each lookup stays in the container's root (openat2, RESOLVE_IN_ROOT). It refuses the kernel's magic links: those of
/proc/PID/root and /proc/PID/fd lead out. A mount goes onto the descriptor that was checked. A dangling link is read.
Its target is looked up in the root like any path, and created there, as in runc.

In a procfs only the few files of plan.REPLACED_IN_PROC may be mount points. Otherwise later writes to /proc could go to
another file (CVE-2019-16884, CVE-2025-52881).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from actors.runtime.helper.kernel import syscalls
from actors.runtime.helper.plan import REPLACED_IN_PROC

_IN_ROOT = syscalls.RESOLVE_IN_ROOT | syscalls.RESOLVE_NO_MAGICLINKS
_ONE = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
_WITHIN = _ONE | syscalls.RESOLVE_NO_XDEV
_PTS = "/dev/pts"
_MOST_LINKS = 40
"""Dangling links followed in one lookup, as the kernel follows links."""


class ContainerRoot:
    """The root directory of this process, which is the container's. Callers close each returned descriptor."""

    def __init__(self) -> None:
        self.fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def find(self, path: str) -> int | None:
        """Descriptor of `path`, or None. Raises OSError, ELOOP for a magic link."""
        try:
            return syscalls.openat2(self.fd, path, os.O_PATH, _IN_ROOT)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise

    def existing_directory(self, path: str) -> int:
        """Descriptor of the directory `path`. Raises OSError."""
        return syscalls.openat2(self.fd, path, os.O_PATH | os.O_DIRECTORY, _IN_ROOT)

    def directory(self, path: str) -> int:
        """Descriptor of the directory `path`; creates missing directories, also at a dangling link's target.

        Raises OSError.
        """
        return self._directory(path, _links())

    def _directory(self, path: str, links: Iterator[int]) -> int:
        try:
            return self.existing_directory(path)
        except FileNotFoundError:
            parent, name = _split(path.rstrip("/"))
        above = self._directory(parent, links)
        try:
            if problem := _in_proc(above, path):
                raise problem
            with contextlib.suppress(FileExistsError):  # another process was faster, or it is a dangling link
                os.mkdir(name, 0o755, dir_fd=above)
            target = _target(above, name)
            if target is None:
                return syscalls.openat2(above, name, os.O_PATH | os.O_DIRECTORY, _ONE)
        finally:
            os.close(above)
        return self._directory(_joined(parent, target, links), links)

    def file(self, path: str) -> int:
        """Descriptor of the file `path`; creates an empty file, also at a dangling link's target. Raises OSError."""
        links = _links()
        while (found := self.find(path)) is None:
            parent, name = _split(path)
            above = self._directory(parent, links)
            try:
                if problem := _in_proc(above, path):
                    raise problem
                target = _target(above, name)
                if target is None:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    os.close(os.open(name, flags, 0o644, dir_fd=above))
                    return syscalls.openat2(above, name, os.O_PATH, _ONE)
            finally:
                os.close(above)
            path = _joined(parent, target, links)
        return found

    def mount_point(self, path: str, *, is_directory: bool) -> int:
        """Descriptor of a mount point, created if missing. Raises OSError for a path in a procfs."""
        fd = self.directory(path) if is_directory else self.file(path)
        if path not in REPLACED_IN_PROC and (problem := _in_proc(fd, path)):
            os.close(fd)
            raise problem
        return fd

    def kernel_mount_point(self, path: str) -> int:
        """Mount point for /proc or /sys, refusing links: later steps name files in them by these paths."""
        os.close(self.directory(path))
        return syscalls.openat2(self.fd, path, os.O_PATH | os.O_DIRECTORY, _IN_ROOT | syscalls.RESOLVE_NO_SYMLINKS)

    def terminals(self) -> int:
        """Descriptor of the devpts at /dev/pts. Raises OSError without one."""
        fd = self.find(_PTS)
        if fd is None:
            raise FileNotFoundError(errno.ENOENT, "there is no devpts in the container", _PTS)
        if syscalls.file_system(fd) != syscalls.DEVPTS_MAGIC:
            os.close(fd)
            raise OSError(errno.EPERM, "it is not a devpts", _PTS)
        return fd


def _links() -> Iterator[int]:
    """Counts the dangling links that one lookup may follow."""
    return iter(range(_MOST_LINKS))


def _split(path: str) -> tuple[str, str]:
    """The parent and the name of a missing file. Raises OSError for a path without a name, such as `missing/..`."""
    parent, name = os.path.split(path)
    if name in ("", ".", ".."):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return parent or "/", name


def _target(directory: int, name: str) -> str | None:
    """The target of a link; None when there is no link of the name. Raises OSError."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _joined(parent: str, target: str, links: Iterator[int]) -> str:
    """The path of a link's target, to be looked up in the root again. Raises OSError for too many links."""
    path = os.path.join(parent, target)
    if next(links, None) is None:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def require_proc(fd: int, path: str) -> None:
    """Require that `fd` is on a procfs if `path` is in /proc. Raises OSError."""
    if path.startswith("/proc/") and syscalls.file_system(fd) != syscalls.PROC_MAGIC:
        raise OSError(errno.EPERM, "it is not in the kernel's /proc", path)


def open_within(directory: int, name: str, flags: int) -> int:
    """Open an entry of a directory by its name, on the same file system, without links. Raises OSError."""
    return syscalls.openat2(directory, name, flags, _WITHIN)


def is_directory(fd: int) -> bool:
    """Return True for the descriptor of a directory."""
    return stat.S_ISDIR(os.fstat(fd).st_mode)


def _in_proc(fd: int, path: str) -> OSError | None:
    if syscalls.file_system(fd) != syscalls.PROC_MAGIC:
        return None
    return OSError(errno.EPERM, "nothing may be mounted or made in the container's /proc", path)
