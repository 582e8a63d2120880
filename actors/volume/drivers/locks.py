"""Locks of calls to CSI drivers: one call at a time for each volume, at most WIDTH for each driver.

Staging and unstaging a volume must not overlap. Unstaging calls count apart, since no pod waits for them. Runs in the
actor's mailbox thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from actors._base import Semaphore

K = TypeVar("K", bound=Hashable)

WIDTH = 8
"""Most concurrent calls for each driver, except unstaging ones."""
UNSTAGE_WIDTH = 2
"""Most concurrent unstaging calls for each driver."""


class KeyedLocks(Generic[K]):
    """A lock for each key, with `width` holders at most. Only keys in use have one: names from outside never end."""

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._locks: dict[K, tuple[Semaphore, int]] = {}
        """Lock and number of its users."""

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def held(self, key: K) -> AsyncIterator[None]:
        """Wait for the lock, and hold it."""
        lock, users = self._locks.get(key, (Semaphore(self._width), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)


class VolumeLocks:
    """The locks of all volumes in work."""

    def __init__(self) -> None:
        self._volumes: KeyedLocks[tuple[str, str]] = KeyedLocks()
        self._drivers: KeyedLocks[str] = KeyedLocks(WIDTH)
        self._unstaging: KeyedLocks[str] = KeyedLocks(UNSTAGE_WIDTH)

    @asynccontextmanager
    async def held(self, driver: str, handle: str, *, unstage: bool = False) -> AsyncIterator[None]:
        """Hold the volume's lock, and one of the driver's calls.

        A call that unstages takes its turn before the lock, so that a pod does not wait for other volumes.
        """
        volume = self._volumes.held((driver, handle))
        if unstage:
            async with self._unstaging.held(driver), volume:
                yield
        else:
            async with volume, self._drivers.held(driver):
                yield
