"""Runs blocking work of scrapes in one thread of the actor at a time, so that the node's figures always find a thread.

A pod may make the work long: it costs more with each of its cgroups, processes and open files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from actors._base import Actor, Future, Semaphore
from proto.wire.errors import AskTimeout

T = TypeVar("T")


class OneThread:
    """Work waits for the work before it. For the actor's thread."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._permit = Semaphore(1)
        self._last: Future[None] | None = None
        """Set when the last work returns, also past its deadline."""

    async def run(self, timeout_s: float, function: Callable[..., T], *args: Any) -> T:
        """Return the function's result. Raises AskTimeout after `timeout_s`, and while earlier work is late."""
        returned: Future[None] = Future()

        @wraps(function)
        def work() -> T:
            try:
                return function(*args)
            finally:
                returned.set(None)

        async with self._permit:
            if self._last is not None and not self._last.done():
                raise AskTimeout("an earlier measurement has not returned")
            future = self._actor.blocking(timeout_s, work)  # raises when the machine has no thread for it
            self._last = returned
            return await future
