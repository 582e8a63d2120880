"""Runs batches of steps that set up volumes, and holds the locks of local PersistentVolumes.

Their disks are mounted once for all pods of the node, and unmounted after the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from actors._base import Actor
from actors._base.keyed_locks import KeyedLocks
from actors.volume.helper.dedicated import owner_of
from actors.volume.helper.pool import NOT_BEGUN, HelperGone, HelperHung, Pool
from actors.volume.steps.codec import Outcome, SetUp
from actors.volume.steps.volumes import Block, Local, Mount, ReleaseDevice

log = logging.getLogger(__name__)


class Devices:
    """One lock for each disk. Helpers read from the mount table what is mounted."""

    def __init__(self, actor: Actor, pool: Pool) -> None:
        self._actor, self._pool = actor, pool
        self._locks: KeyedLocks[str] = KeyedLocks()
        """By PersistentVolume: a disk must not be unmounted while a pod is getting it."""

    async def run(self, *steps: SetUp, is_wanted: Callable[[], bool]) -> tuple[Outcome, ...]:
        """Carry out a batch of steps. Raises HelperHung, HelperGone.

        `is_wanted`: False once the pod is being removed. Its removal waits for the batch.
        """
        device = next((step.name for step in steps if isinstance(step, Local)), "")
        if device:
            async with self._locks.lock(device):
                if not is_wanted():
                    raise HelperGone(NOT_BEGUN)
                return await self._pool.run(*steps, dedicated=True)
        # Servers and disks may take minutes.
        return await self._pool.run(*steps, dedicated=any(isinstance(step, Mount | Block) for step in steps))

    def release(self, *names: str) -> None:
        """Unmount the disks of these persistent volumes from their global paths, unless a pod still has them."""
        for name in names:
            self._actor.spawn(self._release(name), "release")

    async def _release(self, name: str) -> None:
        try:
            async with self._locks.lock(name):
                (outcome,) = await self._pool.run(ReleaseDevice(name))
        except (HelperGone, HelperHung) as error:
            outcome = Outcome(str(error))
        if outcome.error:
            log.error('UnmountDevice failed for volume "%s" : %s', name, outcome.error)


def batches(todo: Mapping[str, SetUp]) -> list[dict[str, SetUp]]:
    """The steps, by volume name, for one helper each. Pure.

    Each server and each disk has its own batch. So no other pod of a disk waits while this one is queued for a server
    that is down. Quick steps come first, together.
    """
    quick: dict[str, SetUp] = {}
    slow: dict[tuple[str, str], dict[str, SetUp]] = {}
    for name, step in todo.items():
        match step:
            case Mount() | Local() | Block():
                device = step.name if isinstance(step, Local) else ""
                slow.setdefault((owner_of((step,)), device), {})[name] = step
            case _:
                quick[name] = step
    return [one for one in (quick, *slow.values()) if one]
