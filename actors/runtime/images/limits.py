"""Limits on an image, so that no pull can fill the machine's disk, memory or CPU time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from actors.runtime.images.errors import BadImage, StoreFull

GIB = 1024**3
_NOTE_BYTES = 160
"""Python's memory for a string, its dictionary entry and a number."""
_ENTRY_BYTES = 64 * 1024
"""Bytes that a new file counts as until the next look at the disk: 256 files may use up a small one's inodes."""
_RESERVED_PART = 0.025
"""Part of a disk's inodes that a pull leaves, at most: half the threshold of evictions, which remove unused images."""
_TAR_OVERHEAD_BYTES = 1024
"""Headers and padding of an entry, which the tar stream has besides the files' bytes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on one image. An image above them is refused, no matter what its manifest says."""

    image_bytes: int = 64 * GIB
    """Size of all files, unpacked."""
    image_entries: int = 2_000_000
    """Files, directories and links."""
    layers: int = 500
    """overlayfs mounts as many and no more."""
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
    reserve_inodes: int = 10_000
    """Free inodes that a pull leaves on a large disk; on a small one it is a part of all."""
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
        self._stream_bytes = limits.image_bytes + limits.image_entries * _TAR_OVERHEAD_BYTES
        self._entries = limits.image_entries
        self._steps = limits.steps
        self._noted = limits.noted_bytes
        self._unchecked = self.CHECKED_EVERY

    def entry(self) -> None:
        """Count one file. Raises BadImage past the limit."""
        self.check_room(_ENTRY_BYTES)
        self._entries -= 1
        if self._entries < 0:
            raise BadImage(f"more than {self.limits.image_entries} files")

    def decompressed(self, count: int) -> None:
        """Count bytes of the layers' streams, of which files are a part. Raises BadImage past the limit."""
        self.require_wanted()
        self._stream_bytes -= count
        if self._stream_bytes < 0:
            raise BadImage("it decompresses to more than an image may have")

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
            check_room(self._path, self.limits)


def check_room(path: str, limits: Limits) -> None:
    """Raise StoreFull when the file system of `path` has less free space, or fewer inodes, than a pull leaves."""
    system = os.statvfs(path)
    free, reserve = system.f_bavail * system.f_frsize, limits.reserve_bytes
    if free < reserve:
        raise StoreFull(f"no room for it: {free} bytes are free at {path}; {reserve} must stay free")
    inodes = min(limits.reserve_inodes, int(system.f_files * _RESERVED_PART))  # some file systems have no number
    if system.f_favail < inodes:
        raise StoreFull(f"no room for it: {system.f_favail} inodes are free at {path}; {inodes} must stay free")


def check_room_for(count: int, path: str, reserve_bytes: int) -> None:
    """Raise StoreFull when `count` more bytes do not fit into the file system of `path` besides `reserve_bytes`."""
    system = os.statvfs(path)
    free = system.f_bavail * system.f_frsize
    if count > free - reserve_bytes:
        error = StoreFull(
            f"no room for it: {count} bytes are needed, {free} are free at {path}; {reserve_bytes} must stay free"
        )
        error.missing_bytes = count - (free - reserve_bytes) if free >= reserve_bytes else 0
        raise error
