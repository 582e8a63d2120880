"""Limits on an image, so that no pull can fill the machine's disk, memory or CPU time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from actors.runtime.images.errors import BadImage, StoreFull

GIB = 1024**3
_NOTE_BYTES = 160
"""Python's memory for a string, its dictionary entry and a number."""
_BLOCK_BYTES = 4096
"""Size of the smallest file on most disks."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on one image. An image above them is refused, no matter what its manifest says."""

    image_bytes: int = 64 * GIB
    """Size of all files, unpacked."""
    image_entries: int = 2_000_000
    """Files, directories and links."""
    layers: int = 500
    """overlayfs takes as many; no runnable image has more."""
    document_bytes: int = 4 * 1024 * 1024
    """Size of an index, a manifest or a configuration; the distribution specification's limit for manifests."""
    header_bytes: int = 1024 * 1024
    """Size of the headers of one file in a tar: names, attributes, the map of a sparse file."""
    steps: int = 20_000_000
    """Lookups of a name in a layer, and other work of that duration: an image of 300,000 files takes some millions."""
    noted_bytes: int = 32 * 1024 * 1024
    """Memory for names of one image: its whiteouts, and directories whose times are set last."""
    depth: int = 255
    """Levels of nested directories."""
    reserve_bytes: int = 256 * 1024**2
    """Free space that a pull leaves on the disk."""
    allow_setuid: bool = True
    """False drops setuid and setgid bits, where files belong to the agent's user."""


class Budget:
    """The rest of one image's limits, counted down while it is unpacked below `path`."""

    CHECKED_EVERY = 16 * 1024**2
    """Bytes written between two checks of the free space."""

    def __init__(self, limits: Limits, path: str, require_wanted: Callable[[], None] = lambda: None) -> None:
        """`require_wanted` is called before each file and each chunk, and in waits; it raises what ends the work."""
        self.limits = limits
        self.require_wanted = require_wanted
        self._path = path
        self._bytes = limits.image_bytes
        self._entries = limits.image_entries
        self._steps = limits.steps
        self._noted = limits.noted_bytes
        self._unchecked = self.CHECKED_EVERY

    def entry(self) -> None:
        """Count one file. Raises BadImage past the limit."""
        self.check_room(_BLOCK_BYTES)
        self._entries -= 1
        if self._entries < 0:
            raise BadImage(f"more than {self.limits.image_entries} files")

    def work(self, steps: int) -> None:
        """Count steps. Raises BadImage past the limit."""
        self._steps -= steps
        if self._steps < 0:
            raise BadImage(f"more than {self.limits.steps} steps to unpack it")

    def note(self, name: str) -> bool:
        """Count a name kept in memory; return False past the limit."""
        self._noted -= len(name) + _NOTE_BYTES
        return self._noted >= 0

    def forget(self, name: str) -> None:
        """Uncount a name."""
        self._noted += len(name) + _NOTE_BYTES

    def take(self, count: int) -> None:
        """Count bytes of a file. Raises BadImage past the limit, StoreFull when the disk is almost full."""
        self._bytes -= count
        if self._bytes < 0:
            raise BadImage(f"unpacks to more than {self.limits.image_bytes} bytes")
        self.check_room(min(count, self.CHECKED_EVERY))

    def check_room(self, count: int) -> None:
        """Count bytes about to be written. Raises StoreFull when the disk is almost full."""
        self.require_wanted()
        self._unchecked += count
        if self._unchecked >= self.CHECKED_EVERY:
            self._unchecked = 0
            check_room(self._path, self.limits.reserve_bytes)


def check_room(path: str, reserve_bytes: int) -> None:
    """Raise StoreFull when the file system of `path` has less free space than `reserve_bytes`."""
    free = _free_bytes(path)
    if free < reserve_bytes:
        raise StoreFull(f"no room for it: {free} bytes are free at {path}; {reserve_bytes} must stay free")


def check_room_for(count: int, path: str, reserve_bytes: int) -> None:
    """Raise StoreFull when `count` more bytes do not fit into the file system of `path` besides `reserve_bytes`."""
    free = _free_bytes(path)
    if count > free - reserve_bytes:
        error = StoreFull(
            f"no room for it: {count} bytes are needed, {free} are free at {path}; {reserve_bytes} must stay free"
        )
        error.missing_bytes = count - (free - reserve_bytes) if free >= reserve_bytes else 0
        raise error


def _free_bytes(path: str) -> int:
    system = os.statvfs(path)
    return system.f_bavail * system.f_frsize
