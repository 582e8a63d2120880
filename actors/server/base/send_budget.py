"""Limits the bytes of answers that wait for slow clients, over all connections, because they take our memory."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from actors._net.stream import Stream

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024 * 1024
"""A thousand clients that follow logs without reading, or a hundred that asked for the pods of a large node."""


class SendBudget:
    """Bytes being sent, by client. Over the limit, the client that has read nothing for longest is disconnected."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self.limit = limit
        self.bytes = 0
        self._of: dict[Stream, int] = {}

    @contextlib.contextmanager
    def pending(self, stream: Stream, size: int) -> Iterator[None]:
        """Count `size` bytes while they are written to the client. Other clients may be disconnected for them."""
        self._of[stream] = size
        self.bytes += size
        while self.bytes > self.limit and (deaf := self._longest_stalled(stream)) is not None:
            log.info("cut off %s: it takes nothing, and %d bytes wait for clients", deaf.remote, self.bytes)
            self._forget(deaf)
            deaf.abort()
        try:
            yield
        finally:
            self._forget(stream)

    def _longest_stalled(self, but: Stream) -> Stream | None:
        stalled = [(one.stalled_since, one) for one in self._of if one is not but and one.stalled_since is not None]
        return min(stalled, key=lambda pair: pair[0], default=(0.0, None))[1]

    def _forget(self, stream: Stream) -> None:
        self.bytes -= self._of.pop(stream, 0)
