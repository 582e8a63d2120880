"""Reads the sizes of all containers' logs: of the files in `pod_logs_dir`/POD/CONTAINER.

The look comes every few seconds, and most directories are as they were. A directory is read again only when its times
have changed. A stat of a known directory needs no block of the disk; reading it may.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

SETTLED_NS = 2_000_000_000
"""A directory that has changed so recently may change again without a later time."""


class Listing(NamedTuple):
    """The names in a directory when it was read."""

    inode: tuple[int, int]
    """Device and number."""
    times: tuple[int, int]
    """Of its last modification and change of status, in ns: tools may set the first one back."""
    names: tuple[str, ...]


class LogTree:
    """Reads one tree again and again. It blocks on the disk."""

    def __init__(self, pod_logs_dir: str) -> None:
        self._root = pod_logs_dir
        self._known: dict[str, Listing] = {}

    def sizes(self) -> Iterator[tuple[str, dict[str, int]]]:
        """The path of each container's directory, with its files' sizes in bytes by name.

        A directory or file that cannot be read is left out: it may be removed with its pod. A container's directory
        that is a symlink is left out, too. An administrator may move a pod's to another disk.
        """
        before, self._known = self._known, {}
        for pod in self._names(self._root, before):
            for container in self._names(f"{self._root}/{pod}", before):
                directory = f"{self._root}/{pod}/{container}"
                yield directory, _sizes(directory, self._names(directory, before, follow=False))

    def _names(self, directory: str, before: dict[str, Listing], *, follow: bool = True) -> tuple[str, ...]:
        try:
            found = os.stat(directory, follow_symlinks=follow)
            if not stat.S_ISDIR(found.st_mode):
                return ()
            inode, times = (found.st_dev, found.st_ino), (found.st_mtime_ns, found.st_ctime_ns)
            known = before.get(directory)
            if known is None or known[:2] != (inode, times):
                now = time.time_ns()
                known = Listing(inode, times, tuple(os.listdir(directory)))
                if now - max(times) < SETTLED_NS:
                    return known.names
        except OSError:
            return ()
        self._known[directory] = known
        return known.names


def _sizes(directory: str, names: tuple[str, ...]) -> dict[str, int]:
    sizes = {}
    for name in names:
        with contextlib.suppress(OSError):
            sizes[name] = os.lstat(f"{directory}/{name}").st_size
    return sizes
