"""Unstages CSI volumes that no pod of the node has, with a back-off for each volume.

A pod does not wait for it (the kubelet's UnmountDevice). A pod that gets the volume meanwhile has it staged anew. The
staging records on disk tell what is left to do, so a kill loses nothing. Runs in the actor's mailbox thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors._base import Actor, Future, first_of
from actors.volume import policy
from actors.volume.csi import policy as csi
from actors.volume.drivers.in_use import InUse
from actors.volume.drivers.locks import VolumeLocks
from actors.volume.drivers.registry import Registry
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.steps.codec import Outcome
from actors.volume.steps.csi import CsiStaged, CsiUnstage, Staged

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"""Pause after a failed look at the disk."""


class Unstaging:
    """The volumes that are being unstaged."""

    def __init__(self, actor: Actor, pool: Pool, registry: Registry, locks: VolumeLocks, in_use: InUse) -> None:
        self._actor, self._pool, self._registry, self._locks = actor, pool, registry, locks
        self.in_use = in_use
        self._errors: dict[Staged, str] = {}
        """The last error of each volume in work."""
        self._due = self._looking = False
        self._registered: Future[None] = Future()
        """Done at the next registration of a driver."""
        in_use.on_leaving = self.look

    def describe(self) -> dict[str, str]:
        """Errors of volumes that cannot be unstaged now, by handle."""
        return {one.handle: error for one, error in self._errors.items() if error}

    def look(self) -> None:
        """Look soon for staged volumes that no pod has, and unstage them; called after each change."""
        if not self._due:
            self._due = True
            self._actor.post(self._begin, name="unstage")

    def driver_registered(self) -> None:
        """Retry at once: some volumes may wait for this driver."""
        registered, self._registered = self._registered, Future()
        registered.set(None)

    def _begin(self) -> None:
        if not self._looking:
            self._looking = True
            self._actor.spawn(self._look(), "unstage")

    async def _look(self) -> None:
        try:
            while self._due:
                self._due = False
                left = self.in_use.leaving
                outcome, stuck_pid = await self._outcome_of(lambda: self._pool.run(CsiStaged()))
                if outcome.error:
                    log.warning("cannot list the staged volumes: %s; trying again", outcome.error)
                    self._due = True
                    await self._pause(LOOK_AGAIN_S, stuck_pid)
                    continue
                self.in_use.settle(left, outcome.staged)
                for one in outcome.unused:
                    if one not in self._errors:
                        self._errors[one] = ""
                        self._actor.spawn(self._unstage(one), "unstage")
        finally:
            self._looking = False

    async def _unstage(self, one: Staged) -> None:
        failures = 0
        try:
            while True:
                async with self._locks.held(one.driver, one.handle):
                    outcome, stuck_pid = await self._try(one)
                if not outcome.error:
                    break
                failures += 1
                if outcome.error != self._errors[one]:
                    log.error('UnmountDevice failed for volume "%s" : %s', one.handle, outcome.error)
                self._errors[one] = outcome.error
                await self._pause(policy.RETRY.delay_s(failures), stuck_pid)
        finally:
            del self._errors[one]
            self.look()

    async def _try(self, one: Staged) -> tuple[Outcome, int]:
        socket = self._registry.endpoint(one.driver)
        if not socket:
            return Outcome(csi.not_registered(one.driver)), 0
        return await self._outcome_of(lambda: self._pool.run(CsiUnstage(one, socket), dedicated=True))

    async def _outcome_of(self, run: Callable[[], Future[tuple[Outcome, ...]]]) -> tuple[Outcome, int]:
        """The outcome of a step, and the PID of its helper if the kernel keeps it."""
        try:
            (outcome,) = await run()
        except HelperHung as hung:
            return Outcome(policy.NOT_IN_TIME), hung.pid
        except HelperGone as gone:
            return Outcome(str(gone)), 0
        return outcome, 0

    async def _pause(self, delay_s: float, stuck_pid: int) -> None:
        """Wait for the next try. While the kernel keeps a helper, nothing touches the volume."""
        if stuck_pid:
            gone: Future[None] = Future()
            self._pool.when_gone(stuck_pid, lambda: gone.set(None))
            await gone
            return
        pause = self._actor.sleep(delay_s)
        await first_of(self._registered, pause)
        pause.cancel()
