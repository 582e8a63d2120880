"""Locks by key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from actors._base import Future, Task
from actors._base.keyed_locks import KeyedLocks


class Users:
    """Coroutines that hold locks until they are told to end."""

    def __init__(self, width: int = 1) -> None:
        self.locks: KeyedLocks[str] = KeyedLocks(width)
        self.ends: dict[str, Future[None]] = {}
        self.holding: list[str] = []
        self._queue: deque[Callable[[], object]] = deque()

    def use(self, name: str, *keys: str) -> None:
        """Hold the lock of one key, or of all keys."""
        self._spawn(self._use(name, keys))
        self._work()

    def end(self, name: str) -> None:
        self.ends[name].set(None)
        self._work()

    async def _use(self, name: str, keys: tuple[str, ...]) -> None:
        self.ends[name] = Future()
        async with self.locks.lock(keys[0]) if len(keys) == 1 else self.locks.all_of(keys):
            self.holding.append(name)
            await self.ends[name]
            self.holding.remove(name)

    def _spawn(self, coroutine: Coroutine[Any, None, None]) -> None:
        task = Task(coroutine, "use", lambda one: self._queue.append(one.step), lambda *_: None, lambda _: None)
        self._queue.append(task.step)

    def _work(self) -> None:
        while self._queue:
            self._queue.popleft()()


@pytest.mark.parametrize("width", [1, 2])
def test_each_key_has_its_own_lock_for_as_long_as_it_is_used(width: int) -> None:
    users = Users(width)
    names = ("one", "two", "three")
    for name in names:
        users.use(name, "a")
    users.use("other", "b")
    assert (users.holding, len(users.locks)) == ([*names[:width], "other"], 2)
    for name in (*names, "other"):
        assert name in users.holding, "in the order of asking"
        users.end(name)
    assert (users.holding, len(users.locks)) == ([], 0)


def test_several_keys_are_taken_in_one_order() -> None:
    """Two callers with the same keys in other orders do not wait for each other for ever."""
    users = Users()
    users.use("holder", "a")
    users.use("first", "b", "a", "a")
    users.use("second", "a", "b")
    assert users.holding == ["holder"]
    for name, after in (("holder", ["first"]), ("first", ["second"]), ("second", [])):
        users.end(name)
        assert users.holding == after
    assert len(users.locks) == 0
