"""Paths of files below one directory that the kernel takes without following a link on the way.

Unpacking resolves links itself, and a mistake there must not lead out of the layer. So each directory is opened by its
name in its parent's descriptor, and a link is refused. Only one thread may change the tree.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES = 4000
"""Length of a path, less than the kernel's limit: other programs take the whole path."""
_MOST_OPEN = 32


class Beneath:
    """The directories of a tree, opened as needed. A path is valid until the next call of `trim` or `close`."""

    def __init__(self, top: str, work: Callable[[int], None]) -> None:
        """`work` is called with the number of lookups ahead, and may raise. Raises OSError."""
        self._length = len(os.fsencode(top))
        self._work = work
        self._top = os.open(top, _DIRECTORY)
        self._known: dict[str, int] = {}
        self._stale: list[int] = []

    def path(self, place: str) -> str:
        """A path for system calls to `place`, relative to the top, whose last component may be a link.

        Raises OSError: ENOTDIR for a link or a file among the parents, ENOENT without them.
        """
        if self._length + 1 + len(os.fsencode(place)) > _MOST_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), place[:200])
        parent, _, name = place.rpartition("/")
        return f"/proc/self/fd/{self._directory(parent)}/{name or '.'}"

    def _directory(self, place: str) -> int:
        if not place:
            return self._top
        if (known := self._known.get(place)) is not None:
            return known
        self._work(place.count("/") + 1)
        here = self._top
        for part in place.split("/"):
            try:
                below = os.open(part, _DIRECTORY, dir_fd=here)
            finally:
                if here != self._top:
                    os.close(here)
            here = below
        self._known[place] = here
        return here

    def forget(self) -> None:
        """Open directories anew: some were removed. Paths in use stay valid."""
        self._stale += self._known.values()
        self._known.clear()

    def trim(self) -> None:
        """Close directories when many are open."""
        if len(self._known) + len(self._stale) < _MOST_OPEN:
            return
        self.forget()
        while self._stale:
            os.close(self._stale.pop())

    def close(self) -> None:
        """Close all directories."""
        self.forget()
        for descriptor in (*self._stale, self._top):
            os.close(descriptor)
        self._stale.clear()
