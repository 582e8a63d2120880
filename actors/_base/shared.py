"""Runs one piece of work for several concurrent callers, who share its result, as Go's singleflight does."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task, first_of

T = TypeVar("T")


class Spawner(Protocol):
    """Runs coroutines: an actor or an event loop."""

    def spawn(self, coroutine: Coroutine[Any, None, T], name: str = "") -> Task[T]:
        """Start a coroutine now."""


class Shared(Generic[T]):
    """The latest result of one piece of work, and its present run. For one thread."""

    def __init__(self, where: Spawner, work: Callable[[], Coroutine[Any, None, T]], name: str) -> None:
        self._where, self._work, self._name = where, work, name
        self._value: T | None = None
        self._began = 0.0
        self._task: Future[T] | None = None
        self.runs = 0

    async def get(self, max_age_s: float) -> T:
        """A result of a run that began at most `max_age_s` ago. An error of the run is raised in all its callers."""
        asked = time.monotonic()
        while self._value is None or asked - self._began > max_age_s:
            # The present run may have begun too early for this caller, who then needs the next one.
            if self._task is None or self._task.done():
                self._task = self._where.spawn(self._run(), self._name)
            run = self._task
            await first_of(run)  # not the run itself: a cancellation of this caller would end it for the others
            run.result(0)
        return self._value

    def forget(self, older_than_s: float) -> None:
        """Drop a result older than this, to free the memory of a large one."""
        if time.monotonic() - self._began > older_than_s:
            self._value = None

    async def _run(self) -> T:
        began = time.monotonic()
        self.runs += 1
        value = await self._work()
        self._value, self._began = value, began
        return value
