"""Disks of this node that several pods may have: mounted for all of them, one change at a time, gone with the last."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

from actors._base import Actor, Semaphore
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.steps.codec import Block, Local, Mount, Outcome, ReleaseDevice, SetUp

log = logging.getLogger(__name__)


class Devices:
    """State: none but who is at work on which volume. What is mounted is read from the table by the helpers."""

    def __init__(self, actor: Actor, pool: Pool) -> None:
        self._actor, self._pool = actor, pool
        self._gates: dict[str, Semaphore] = {}
        """By persistent volume: its disk is not unmounted while a pod is getting it."""

    async def run(self, *steps: SetUp) -> tuple[Outcome, ...]:
        """Carry out steps, which may be about such volumes or others. Raises HelperHung, HelperGone."""
        if not any(isinstance(step, Mount | Local | Block) for step in steps):
            return await self._pool.run(*steps)
        async with AsyncExitStack() as held:
            for device in sorted({step.name for step in steps if isinstance(step, Local)}):
                await held.enter_async_context(self._gate(device))
            return await self._pool.run(*steps, own=True)  # servers and disks take their time

    def release(self, *names: str) -> None:
        """Unmount these persistent volumes' disks from where all pods had them, but for those that one still has."""
        for name in names:
            self._actor.spawn(self._release(name), "release")

    async def _release(self, name: str) -> None:
        try:
            async with self._gate(name):
                (outcome,) = await self._pool.run(ReleaseDevice(name))
        except (HelperGone, HelperHung) as error:
            outcome = Outcome(str(error))
        if outcome.error:
            log.error('UnmountDevice failed for volume "%s" : %s', name, outcome.error)

    def _gate(self, name: str) -> Semaphore:
        return self._gates.setdefault(name, Semaphore(1))
