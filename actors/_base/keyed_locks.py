"""A lock for each key, such as a volume's name. Waiting coroutines get it in the order in which they asked.

A lock exists only while a coroutine holds it or waits for it: keys come from outside, and their number has no bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

from actors._base.messaging.tasks import Semaphore

K = TypeVar("K", bound=Hashable)


class KeyedLocks(Generic[K]):
    """A lock for each key, with at most `width` holders at a time. For one thread."""

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._locks: dict[K, tuple[Semaphore, int]] = {}
        """Lock, and number of coroutines that hold it or wait for it."""

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def lock(self, key: K) -> AsyncIterator[None]:
        """Wait until fewer than `width` other coroutines hold the key, and hold it during the block."""
        semaphore, users = self._locks.get(key, (Semaphore(self._width), 0))
        self._locks[key] = semaphore, users + 1
        try:
            async with semaphore:
                yield
        finally:
            semaphore, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = semaphore, users - 1

    @asynccontextmanager
    async def all_of(self, keys: Iterable[K]) -> AsyncIterator[None]:
        """Wait for all of the keys, and hold them during the block. All callers take them in one order: no deadlock."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys), key=repr):
                await stack.enter_async_context(self.lock(key))
            yield
