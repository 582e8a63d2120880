"""How much an image may be: bounds on what one pull can do to the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

from actors.runtime.images.registry.errors import BadImage, StoreFull

GIB = 1024**3
_NOTE_BYTES = 160
"""What Python takes for a string, its place in a dictionary, and a number."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one image. Above them it is refused, whatever its manifest says."""

    image_bytes: int = 64 * GIB
    """Of all its files, unpacked."""
    image_entries: int = 2_000_000
    """Files, directories, links."""
    layers: int = 500
    """overlayfs takes as many; an image of more was not built to be run."""
    document_bytes: int = 4 * 1024 * 1024
    """Of an index, a manifest or a configuration; the distribution specification's for manifests."""
    header_bytes: int = 1024 * 1024
    """Of the headers of one file in a tar: names, attributes, the map of a sparse file."""
    steps: int = 20_000_000
    """Looks at a name in a layer, and what takes as long: an image of 300,000 files takes some millions."""
    noted_bytes: int = 32 * 1024 * 1024
    """Of the names that are kept in memory of one image: what it hides, and directories whose times are set last."""
    depth: int = 255
    """Directories in each other."""
    reserve_bytes: int = 256 * 1024**2
    """What a pull leaves free on the disk."""
    allow_setuid: bool = True
    """False drops setuid and setgid: where the files belong to the user who runs the agent."""


class Budget:
    """What is left of the limits for one image, counted down while it is unpacked under `path`."""

    CHECKED_EVERY = 16 * 1024**2
    """Bytes between two looks at the disk."""

    def __init__(self, limits: Limits, path: str) -> None:
        self.limits = limits
        self._path = path
        self._bytes = limits.image_bytes
        self._entries = limits.image_entries
        self._steps = limits.steps
        self._noted = limits.noted_bytes
        self._unchecked = self.CHECKED_EVERY

    def entry(self) -> None:
        """One more file. Raises BadImage past the limit."""
        self._entries -= 1
        if self._entries < 0:
            raise BadImage(f"more than {self.limits.image_entries} files")

    def work(self, steps: int) -> None:
        """So many steps. Raises BadImage past the limit."""
        self._steps -= steps
        if self._steps < 0:
            raise BadImage(f"more than {self.limits.steps} steps to unpack it")

    def note(self, name: str) -> bool:
        """Whether there is room to keep one more name in memory."""
        self._noted -= len(name) + _NOTE_BYTES
        return self._noted >= 0

    def forget(self, name: str) -> None:
        """It is not kept any more."""
        self._noted += len(name) + _NOTE_BYTES

    def take(self, count: int) -> None:
        """So many bytes more. Raises BadImage past the limit, StoreFull when the disk is about to be."""
        self._bytes -= count
        if self._bytes < 0:
            raise BadImage(f"unpacks to more than {self.limits.image_bytes} bytes")
        self.check_room(min(count, self.CHECKED_EVERY))

    def check_room(self, count: int) -> None:
        """So many bytes are about to be written. Raises StoreFull when the disk is about to be full."""
        self._unchecked += count
        if self._unchecked >= self.CHECKED_EVERY:
            self._unchecked = 0
            check_room(self._path, self.limits.reserve_bytes)


def check_room(path: str, reserve_bytes: int) -> None:
    """Raises StoreFull when less than that is free on the file system of `path`."""
    system = os.statvfs(path)
    free = system.f_bavail * system.f_frsize
    if free < reserve_bytes:
        raise StoreFull(f"no room for it: {free} bytes are free at {path}, and {reserve_bytes} are left free")
