"""Work that several ask for at once and that is done once: questions that come while it is under way share it."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task

T = TypeVar("T")


class Spawner(Protocol):
    """Where coroutines run: an actor, or a loop of its own."""

    def spawn(self, coroutine: Coroutine[Any, None, T], name: str = "") -> Task[T]:
        """Start a coroutine now."""


class Shared(Generic[T]):
    """The latest result of one piece of work, and the one under way. For its thread only."""

    def __init__(self, where: Spawner, work: Callable[[], Coroutine[Any, None, T]], name: str) -> None:
        self._where, self._work, self._name = where, work, name
        self._value: T | None = None
        self._began = 0.0
        self._task: Future[T] | None = None
        self.runs = 0

    async def get(self, max_age_s: float) -> T:
        """A result of work that began at most `max_age_s` ago. Raises what the work raises, for all who wait."""
        asked = time.monotonic()
        while self._value is None or asked - self._began > max_age_s:
            # One that is under way may have begun too early for this question; then it is the next that will do.
            if self._task is None or self._task.done():
                self._task = self._where.spawn(self._run(), self._name)
            await self._task
        return self._value

    def forget(self, older_than_s: float) -> None:
        """Give up a result that is so old: for those that are large."""
        if time.monotonic() - self._began > older_than_s:
            self._value = None

    async def _run(self) -> T:
        began = time.monotonic()
        self.runs += 1
        value = await self._work()
        self._value, self._began = value, began
        return value
