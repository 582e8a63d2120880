"""Locks by key, in the order of asking. Only keys in use have one, since names from outside never end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

from actors._base.messaging.tasks import Semaphore

K = TypeVar("K", bound=Hashable)


class KeyedLocks(Generic[K]):
    """A lock for each key, with `width` holders at most."""

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._gates: dict[K, tuple[Semaphore, int]] = {}
        """Lock, and number of coroutines that have or want it."""

    def __len__(self) -> int:
        return len(self._gates)

    @asynccontextmanager
    async def lock(self, key: K) -> AsyncIterator[None]:
        """Wait until less than `width` other coroutines have the key."""
        gate, users = self._gates.get(key, (Semaphore(self._width), 0))
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
        """Wait for all of the keys. All callers take them in one order."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys), key=repr):
                await stack.enter_async_context(self.lock(key))
            yield
