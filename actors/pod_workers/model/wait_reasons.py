"""Texts that tell what a pod worker waits for, so that a person can see why a pod is stuck."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class WaitReasons:
    """Written in the worker's mailbox thread; `lines` and `last_error` may be read from any thread."""

    def __init__(self) -> None:
        self.last_error = ""
        """Why the last step failed; empty after a step that succeeded."""
        self._now: dict[object, tuple[str, float]] = {}

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """The worker waits for `what` within the block. Blocks may overlap."""
        mark = object()
        self._now[mark] = (what, time.monotonic())
        try:
            yield
        finally:
            del self._now[mark]

    def lines(self) -> list[str]:
        """Each wait with its seconds so far, the longest first."""
        now = time.monotonic()
        waits = list(self._now.values())  # a copy: the worker may change it meanwhile
        waits.sort(key=lambda wait: wait[1])
        return [f"{what} ({now - since:.0f}s)" for what, since in waits]
