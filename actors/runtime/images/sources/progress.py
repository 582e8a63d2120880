"""The progress of running pulls, for ListPulls and the log."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from actors.runtime.images.errors import ImageError

LOG_EVERY_S = 15.0
"""Interval of a pull's log messages."""
log = logging.getLogger(__name__)


class Cancelled(ImageError):
    """The pull's client has gone. Downloaded bytes stay, to be resumed."""


@dataclass(slots=True)
class Pull:
    """One running pull. The pulling thread writes it, others read it."""

    name: str
    began: float = field(default_factory=time.time)
    """Unix seconds."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Compressed size of each layer, by digest; empty before the manifest is read."""
    have: dict[str, int] = field(default_factory=dict)
    """Downloaded bytes of each layer, by digest."""
    cancelled: bool = False
    _logged: float = field(default_factory=time.monotonic)

    def expect(self, sizes: Iterable[tuple[str, int]]) -> None:
        """Set the layers to download."""
        self.sizes = dict(sizes)

    def advance(self, digest: str, have: int) -> None:
        """Set the downloaded bytes of a layer. Raises Cancelled."""
        self.have[digest] = have
        self.require_wanted()
        now = time.monotonic()
        if now - self._logged >= LOG_EVERY_S:
            self._logged = now
            log.info("pulling %s: %s", self.name, self)

    def cancel(self) -> None:
        """Cancel the pull, from any thread: it stops with its next bytes, or before the image gets its name."""
        self.cancelled = True

    def require_wanted(self) -> None:
        """Raise Cancelled after `cancel`."""
        if self.cancelled:
            raise Cancelled("the pull was cancelled")

    def complete(self, digest: str) -> None:
        """Count a layer that is in the store."""
        self.have[digest] = self.sizes.get(digest, 0)

    @property
    def done_bytes(self) -> int:
        """Downloaded bytes of all layers."""
        return sum(min(self.have.get(digest, 0), size) for digest, size in self.sizes.items())

    @property
    def total_bytes(self) -> int:
        """Size of all layers; 0 before the manifest is read."""
        return sum(self.sizes.values())

    @property
    def layers_done(self) -> int:
        """The number of complete layers."""
        return sum(self.have.get(digest, 0) >= size for digest, size in self.sizes.items())

    def __str__(self) -> str:
        return (
            f"{self.done_bytes / 1e6:.1f} of {self.total_bytes / 1e6:.1f} MB, "
            f"{self.layers_done} of {len(self.sizes)} layers"
        )


class Pulls:
    """All running pulls. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pulls: list[Pull] = []

    @contextlib.contextmanager
    def track(self, name: str) -> Iterator[Pull]:
        """List a pull during the context."""
        pull = Pull(name)
        with self._lock:
            self._pulls.append(pull)
        try:
            yield pull
        finally:
            with self._lock:
                self._pulls.remove(pull)

    def list(self) -> list[Pull]:
        """All running pulls, oldest first."""
        with self._lock:
            return list(self._pulls)
