"""Counts the open files and sockets of containers' processes from /proc. Blocks.

A container may have millions of descriptors. Each costs a readlink(2), which tells sockets apart. So the links of one
container have a maximum, and all containers together a deadline.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MOST_LINKS = 50_000
"""Descriptors of one container that are looked at. They take 0.2 s, and 0.5 s on a busy machine."""
COUNTING_S = 5.0
"""For all containers of one measurement."""
_LOOK_AT_CLOCK = 1000
"""Descriptors between two looks at the deadline."""


class OpenFiles(NamedTuple):
    """Counts over the processes of one container. They are too low where not all were counted."""

    descriptors: int = 0
    sockets: int = 0
    all_descriptors: bool = True
    all_sockets: bool = True


class Counter:
    """Counts for one measurement, which begins now."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + COUNTING_S

    def count(self, pids: Iterable[int]) -> OpenFiles:
        """Count over one container's processes."""
        descriptors = sockets = looked_at = 0
        all_descriptors = all_sockets = True
        for pid in pids:
            if self._is_late():
                return OpenFiles(descriptors, sockets, all_descriptors=False, all_sockets=False)
            told = _told(pid)
            found, of_them_sockets, whole = self._look(pid, MOST_LINKS - looked_at)
            looked_at += found
            sockets += of_them_sockets
            descriptors += max(told, found)
            all_sockets = all_sockets and whole
            all_descriptors = all_descriptors and (whole or told > 0)
        return OpenFiles(descriptors, sockets, all_descriptors, all_sockets)

    def _look(self, pid: int, most: int) -> tuple[int, int, bool]:
        """Look at so many descriptors of a process: (descriptors, sockets, True if these are all)."""
        found = sockets = 0
        if most <= 0:
            return 0, 0, False
        with contextlib.suppress(OSError), _directory(pid) as here, os.scandir(here) as entries:  # it has ended
            for entry in entries:
                if found >= most or (found % _LOOK_AT_CLOCK == 0 and self._is_late()):
                    return found, sockets, False
                found += 1
                with contextlib.suppress(OSError):
                    sockets += os.readlink(entry.name, dir_fd=here).startswith("socket:")
        return found, sockets, True

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline


@contextlib.contextmanager
def _directory(pid: int) -> Iterator[int]:
    """The open directory of a process's descriptors: a name in it is found faster than a path. Raises OSError."""
    here = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield here
    finally:
        os.close(here)


def _told(pid: int) -> int:
    """The number of descriptors, as Linux 6.2 and later tell it; else 0."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/fd").st_size
    return 0
