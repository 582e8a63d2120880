"""The waits of a pod worker, for `describe` and for the wait records: a person sees why a pod is stuck."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from actors._base.messaging import waits
from actors._base.messaging.waits import Standing, Subject
from proto.v1 import Pod
from proto.waits.record import Kind

REJECTED = "rejected"
"""Target of the record of a pod that the node does not run: it waits for nothing."""


def subject_of(pod: Pod) -> Subject:
    """The pod as the subject of waits."""
    meta = pod.metadata
    return Subject(f"pod/{meta.namespace}/{meta.name}", meta.uid)


class WaitReasons:
    """Written in the worker's mailbox thread; `lines` and `last_error` may be read from any thread."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._error = ""
        self._now: dict[object, tuple[str, float]] = {}
        self._standing = Standing()
        self._told: set[str] = set()

    @contextmanager
    def waiting_for(
        self, what: str, kind: Kind = "condition", target: str = "", timeout_s: float = 0.0, **fields: Any
    ) -> Iterator[None]:
        """The worker waits for `what` within the block. Blocks may overlap. `fields`: as of `waits.begin`."""
        mark = object()
        self._now[mark] = (what, time.monotonic())
        try:
            with waits.waiting(kind, target, what, subject=self._subject, timeout_s=timeout_s, **fields):
                yield
        finally:
            del self._now[mark]

    def lines(self) -> list[str]:
        """Each wait with its seconds so far, the longest first."""
        now = time.monotonic()
        found = list(self._now.values())  # a copy: the worker may change it meanwhile
        found.sort(key=lambda wait: wait[1])
        return [f"{what} ({now - since:.0f}s)" for what, since in found]

    @property
    def last_error(self) -> str:
        """Why the last step failed; empty after a step that succeeded."""
        return self._error

    def failed(self, error: str, wait_s: float) -> None:
        """A step failed, and is tried again in `wait_s` seconds."""
        self._error = error
        self._standing.put("step", self._subject, "retry", "", error=error, next_try=time.monotonic() + wait_s)

    def begin_step(self) -> None:
        """A step begins. What holds the pod back is told again, or is over at its end."""
        self._told.clear()

    def held_back(self, part: str, reason: str, message: str, wait_s: float, loop_s: float = 0.0) -> None:
        """A part of the pod, such as `container app`, cannot go on. It is tried again in `wait_s` seconds.

        `loop_s`: seconds since the first end of a crash loop; 0 without one.
        """
        self._told.add(part)
        what = f"{part}: {reason}" if reason else part
        now = time.monotonic()
        first = now - loop_s if loop_s > 0 else 0.0
        self._standing.put(part, self._subject, "retry", what, error=message, next_try=now + wait_s, first=first)

    def step_done(self) -> None:
        """A step has ended without an error."""
        self._error = ""
        self._standing.keep(self._told | {REJECTED})

    def rejected(self, reason: str, message: str) -> None:
        """The node does not run the pod."""
        self._standing.put(REJECTED, self._subject, "admission", f"{reason}: {message}", target=REJECTED)

    def over(self) -> None:
        """Nothing of the pod is left."""
        self._standing.keep(set())
