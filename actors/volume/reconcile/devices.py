"""Disks of local PersistentVolumes: mounted once for all pods of the node, and unmounted after the last one."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

from actors._base import Actor, Semaphore
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.steps.codec import Outcome, SetUp
from actors.volume.steps.volumes import Block, Local, Mount, ReleaseDevice

log = logging.getLogger(__name__)


class Devices:
    """One lock for each disk. Helpers read from the mount table what is mounted."""

    def __init__(self, actor: Actor, pool: Pool) -> None:
        self._actor, self._pool = actor, pool
        self._gates: dict[str, Semaphore] = {}
        """Locks by PersistentVolume: a disk must not be unmounted while a pod is getting it."""

    async def run(self, *steps: SetUp) -> tuple[Outcome, ...]:
        """Carry out steps for volumes of any kind. Raises HelperHung, HelperGone."""
        if not any(isinstance(step, Mount | Local | Block) for step in steps):
            return await self._pool.run(*steps)
        async with AsyncExitStack() as held:
            for device in sorted({step.name for step in steps if isinstance(step, Local)}):
                await held.enter_async_context(self._gate(device))
            return await self._pool.run(*steps, dedicated=True)  # servers and disks may take minutes

    def release(self, *names: str) -> None:
        """Unmount the disks of these persistent volumes from their global paths, unless a pod still has them."""
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
