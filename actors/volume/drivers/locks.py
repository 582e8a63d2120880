"""Locks of calls to CSI drivers: one call at a time for each volume, at most WIDTH for each driver.

Staging and unstaging a volume must not overlap. Unstaging calls count apart, since no pod waits for them. Runs in the
actor's mailbox thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from actors._base.keyed_locks import KeyedLocks

WIDTH = 8
"""Most concurrent calls for each driver, except unstaging ones."""
UNSTAGE_WIDTH = 2
"""Most concurrent unstaging calls for each driver."""


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
        volume = self._volumes.lock((driver, handle))
        if unstage:
            async with self._unstaging.lock(driver), volume:
                yield
        else:
            async with volume, self._drivers.lock(driver):
                yield
