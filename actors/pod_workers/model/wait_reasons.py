"""What a pod worker waits for, in words, so that a person can ask why a pod is stuck."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class WaitReasons:
    """Written in the worker's mailbox thread; `lines` and `trouble` may be read from any."""

    def __init__(self) -> None:
        self.last_error = ""
        """Why the last step failed; empty once one has not."""
        self._now: dict[object, tuple[str, float]] = {}

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Meanwhile the worker waits for that, perhaps beside other things."""
        mark = object()
        self._now[mark] = (what, time.monotonic())
        try:
            yield
        finally:
            del self._now[mark]

    def lines(self) -> list[str]:
        """What it waits for, and for how many seconds it has, the longest first."""
        now = time.monotonic()
        waits = list(self._now.values())  # at once: the worker may go on meanwhile
        waits.sort(key=lambda wait: wait[1])
        return [f"{what} ({now - since:.0f}s)" for what, since in waits]
