"""How far pulls are, for those who wait: the command line asks, the log is told now and then."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from actors.runtime.images.registry.errors import ImageError

LOG_EVERY_S = 15.0
"""A pull that takes longer says how far it is this often."""
log = logging.getLogger(__name__)


class Cancelled(ImageError):
    """Whoever asked for the pull is gone. What has been downloaded stays, to be gone on with."""


@dataclass(slots=True)
class Pull:
    """One under way. Written by the thread that pulls, read by others."""

    name: str
    began: float = field(default_factory=time.time)
    """Unix seconds."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each layer, compressed, by digest; empty until the manifest is there."""
    have: dict[str, int] = field(default_factory=dict)
    """Of them on this machine."""
    cancelled: bool = False
    _told: float = field(default_factory=time.monotonic)

    def expect(self, sizes: Iterable[tuple[str, int]]) -> None:
        """What is to come."""
        self.sizes = dict(sizes)

    def at(self, digest: str, have: int) -> None:
        """So much of a layer is there. Raises Cancelled."""
        self.have[digest] = have
        self.require_wanted()
        now = time.monotonic()
        if now - self._told >= LOG_EVERY_S:
            self._told = now
            log.info("pulling %s: %s", self.name, self)

    def cancel(self) -> None:
        """From any thread; it ends with its next bytes, or before it gets its name."""
        self.cancelled = True

    def require_wanted(self) -> None:
        """Raises Cancelled."""
        if self.cancelled:
            raise Cancelled("the pull was cancelled")

    def whole(self, digest: str) -> None:
        """A layer is in the store."""
        self.have[digest] = self.sizes.get(digest, 0)

    @property
    def done_bytes(self) -> int:
        """Of all layers."""
        return sum(min(self.have.get(digest, 0), size) for digest, size in self.sizes.items())

    @property
    def total_bytes(self) -> int:
        """0 until it is known."""
        return sum(self.sizes.values())

    @property
    def layers_done(self) -> int:
        """Layers of which every byte is there."""
        return sum(self.have.get(digest, 0) >= size for digest, size in self.sizes.items())

    def __str__(self) -> str:
        return (
            f"{self.done_bytes / 1e6:.1f} of {self.total_bytes / 1e6:.1f} MB, "
            f"{self.layers_done} of {len(self.sizes)} layers"
        )


class Pulls:
    """All under way. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pulls: list[Pull] = []

    @contextlib.contextmanager
    def under_way(self, name: str) -> Iterator[Pull]:
        """One more until the end."""
        pull = Pull(name)
        with self._lock:
            self._pulls.append(pull)
        try:
            yield pull
        finally:
            with self._lock:
                self._pulls.remove(pull)

    def list(self) -> list[Pull]:
        """The oldest first."""
        with self._lock:
            return list(self._pulls)
