"""Ends a streaming session whose client has disconnected, or that is idle, when reading does not notice it."""

from __future__ import annotations

import time
from collections.abc import Callable

from actors._net.loop import Loop
from actors._net.stream import Stream

LOOK_S = 5.0
"""Interval of the check. While a command takes no input the client's socket is not read."""


class ClientWatchdog:
    """Aborts a session's stream when its client is gone or no byte has passed for `idle_s`."""

    def __init__(self, loop: Loop, stream: Stream, idle_s: float, on_end: Callable[[], object]) -> None:
        """`idle_s` 0 is no limit."""
        self._loop, self._stream, self._idle_s, self._on_end = loop, stream, idle_s, on_end
        self.last = time.monotonic()
        self._timer = loop.call_later(self._wait_s(), self._check)

    def touch(self) -> None:
        """Note that bytes passed."""
        self.last = time.monotonic()

    def _check(self) -> None:
        idle = 0 < self._idle_s < time.monotonic() - self.last
        if idle or self._stream.peer_left:
            self._stream.abort()
            self._on_end()
            return
        self._timer = self._loop.call_later(self._wait_s(), self._check)

    def _wait_s(self) -> float:
        return min(LOOK_S, self._idle_s) if self._idle_s > 0 else LOOK_S

    def cancel(self) -> None:
        """Stop the checks."""
        self._timer.cancel()
