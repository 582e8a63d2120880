"""Locks by key: one coroutine at a time for each key, in the order of asking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

from actors._base import Semaphore

K = TypeVar("K", bound=Hashable)


class KeyedLocks(Generic[K]):
    """State: the keys that are locked, and the number of coroutines that have or want each."""

    def __init__(self) -> None:
        self._gates: dict[K, tuple[Semaphore, int]] = {}

    @asynccontextmanager
    async def lock(self, key: K) -> AsyncIterator[None]:
        """Wait until no other coroutine has the key."""
        gate, users = self._gates.get(key, (Semaphore(1), 0))
        self._gates[key] = gate, users + 1
        try:
            async with gate:
                yield
        finally:
            gate, users = self._gates.pop(key)
            if users > 1:
                self._gates[key] = gate, users - 1

    @asynccontextmanager
    async def all_of(self, keys: Iterable[K]) -> AsyncIterator[None]:
        """Wait until no other coroutine has one of the keys. All callers take them in one order."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys), key=repr):
                await stack.enter_async_context(self.lock(key))
            yield
