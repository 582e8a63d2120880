"""How much of their answers clients may leave untaken, all together: what waits for them is this process's memory."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from actors._net.stream import Stream

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 1024 * 1024
"""A thousand clients that follow logs and do not read, or a hundred with the pods of a large node."""


class Untaken:
    """Bytes on their way, by client. When they are too many, those who have taken nothing for longest have to go."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most = most
        self.bytes = 0
        self._of: dict[Stream, int] = {}

    @contextlib.contextmanager
    def on_its_way(self, stream: Stream, size: int) -> Iterator[None]:
        """While so many bytes are written to that client. Others may be cut off for it."""
        self._of[stream] = size
        self.bytes += size
        while self.bytes > self.most and (deaf := self._longest_stalled(stream)) is not None:
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
