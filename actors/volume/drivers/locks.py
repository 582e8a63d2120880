"""Locks of calls to CSI drivers: one call at a time for each volume, at most WIDTH for each driver.

Staging and unstaging a volume must not overlap. Unstaging calls count apart, since no pod waits for them. Runs in the
actor's mailbox thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from actors._base import Semaphore

WIDTH = 8
"""Most concurrent calls for each driver, except unstaging ones."""
UNSTAGE_WIDTH = 2
"""Most concurrent unstaging calls for each driver."""


class VolumeLocks:
    """The locks of all volumes in work."""

    def __init__(self) -> None:
        self._volumes: dict[tuple[str, str], tuple[Semaphore, int]] = {}
        """Lock and number of its users, for each volume in work, by (driver, handle)."""
        self._drivers: dict[str, Semaphore] = {}
        self._unstaging: dict[str, Semaphore] = {}

    @asynccontextmanager
    async def held(self, driver: str, handle: str, *, unstage: bool = False) -> AsyncIterator[None]:
        """Hold the volume's lock, and one of the driver's calls.

        A call that unstages takes its turn before the lock, so that a pod does not wait for other volumes.
        """
        key = driver, handle
        gate, users = self._volumes.get(key, (Semaphore(1), 0))
        self._volumes[key] = (gate, users + 1)
        try:
            if unstage:
                async with self._unstaging.setdefault(driver, Semaphore(UNSTAGE_WIDTH)), gate:
                    yield
            else:
                async with gate, self._drivers.setdefault(driver, Semaphore(WIDTH)):
                    yield
        finally:
            gate, users = self._volumes.pop(key)
            if users > 1:
                self._volumes[key] = (gate, users - 1)
