"""One worker at a time for each key, in the order of asking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

from actors._base import Semaphore

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """State: the keys with a worker, and the number of workers that wait for each."""

    def __init__(self) -> None:
        self._gates: dict[K, tuple[Semaphore, int]] = {}

    @asynccontextmanager
    async def turn(self, key: K) -> AsyncIterator[None]:
        """Wait until no other worker has the key."""
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
        """Wait until no other worker has one of the keys. All callers take them in one order: none waits for ever."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys), key=repr):
                await stack.enter_async_context(self.turn(key))
            yield
