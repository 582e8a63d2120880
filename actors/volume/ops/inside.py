"""Walks and reads inside volumes whose content is hostile, by descriptors that follow no link. Blocks.

A container that may write to a volume can put a link anywhere in it, at any moment. So each component of a path is
opened relative to the one before, and links are read and resolved likewise.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from actors.volume.steps.errors import VolumeError

PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
"""The kernel's limit."""


@contextmanager
def opened(path: str, flags: int, dir_fd: int | None = None) -> Iterator[int]:
    """A descriptor, closed at the end. Raises OSError."""
    fd = os.open(path, flags, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


class Walk:
    """A walk with the volume as its root: links, also absolute ones, and `..` stay inside.

    `here` is the descriptor (O_PATH) of the present position; `close` closes all of them but the volume's.
    """

    def __init__(self, volume: int) -> None:
        self.volume = volume
        self.is_linked = False
        """The present name comes from a link."""
        self._passed: list[int] = []
        self._links = 0
        self._linked = 0
        """Names ahead that links have put there."""

    @property
    def here(self) -> int:
        """Descriptor of the present position."""
        return self._passed[-1] if self._passed else self.volume

    def close(self) -> None:
        """Go back to the volume."""
        while self._passed:
            os.close(self._passed.pop())

    def walk(self, path: str) -> None:
        """Walk along a relative path. Raises OSError, VolumeError."""
        ahead = deque(path.split("/"))
        while ahead:
            name = ahead.popleft()
            self.is_linked = self._linked > 0
            self._linked = max(0, self._linked - 1)
            if name == ".." and self._passed:
                os.close(self._passed.pop())
            elif name == "..":
                self.leave(path)
            elif name not in ("", "."):
                fd = self.open(name)
                if not stat.S_ISLNK(os.fstat(fd).st_mode):
                    self._passed.append(fd)
                    continue
                try:
                    target = os.readlink("", dir_fd=fd)
                finally:
                    os.close(fd)
                self._links += 1
                if self._links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, "too many levels of symbolic links", path)
                if target.startswith("/"):
                    target = self.resolve(target, path)
                    self.close()
                names = target.split("/")
                ahead.extendleft(reversed(names))
                self._linked += len(names)

    def leave(self, path: str) -> None:
        """Handle `..` at the volume: stay there, as at a root directory."""

    def resolve(self, target: str, path: str) -> str:  # noqa: ARG002 - for subclasses
        """An absolute link's target as a path from the volume."""
        return target

    def open(self, name: str) -> int:
        """Open an entry of the present directory. Raises OSError."""
        return os.open(name, PATH, dir_fd=self.here)


def read(volume: str, path: str, max_bytes: int) -> bytes:
    """Content of the file at `path` in the directory `volume`. Raises VolumeError, also beyond `max_bytes`."""
    try:
        with opened(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) as top:
            walk = Walk(top)
            try:
                walk.walk(path)
                if not stat.S_ISREG(os.fstat(walk.here).st_mode):
                    # Opening a FIFO or device may block or have effects.
                    raise VolumeError(f"{path} is not a regular file")
                # Without waiting: a process of the container may hold a lease on the file.
                fd = os.open(f"/proc/self/fd/{walk.here}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            finally:
                walk.close()
    except OSError as error:
        raise VolumeError(f"cannot open {path}: {error.strerror}") from error
    with open(fd, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise VolumeError(f"{path} is larger than {max_bytes} bytes")
    return content
