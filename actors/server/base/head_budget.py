"""Limits the bytes of request heads in memory, over all connections: a client sends them before it is authenticated."""

from __future__ import annotations

import logging

from actors._net.stream import Stream
from proto.common import logs

log = logging.getLogger(__name__)
_limited_log = logs.Limited(log)

MAX_BYTES = 32 * 1024 * 1024
"""The parser has a second copy of an incomplete head, so they take 64 MiB. A few dozen clients may send a head of the
largest size at a time."""
SMALL_BYTES = 4 * 1024
"""A head up to this size is not counted, so that a flood of others ends no ordinary request. Its token has 1 to 2 KB.
Such heads of all connections take 64 MiB, and 128 MiB with the parser's copies."""


class HeadBudget:
    """Bytes of heads by client, from their first byte to their answer. Over the limit, the longest is disconnected."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self.limit = limit
        self.bytes = 0
        self._of: dict[Stream, int] = {}

    def count(self, stream: Stream, size: int) -> None:
        """Note the present size of a client's head. This client or others may be disconnected for it."""
        self.forget(stream)
        if size <= SMALL_BYTES:
            return
        self._of[stream] = size
        self.bytes += size
        while self.bytes > self.limit:
            longest = max(self._of, key=lambda one: self._of[one])
            said = "cut off %s: its head has %d bytes, and all heads %d"
            _limited_log.log(logging.INFO, said, longest.remote, self._of[longest], self.bytes)
            self.forget(longest)
            longest.abort()

    def forget(self, stream: Stream) -> None:
        """The client's request is answered, or the client is gone."""
        self.bytes -= self._of.pop(stream, 0)
