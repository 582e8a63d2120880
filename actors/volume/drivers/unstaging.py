"""Unstages CSI volumes that no pod of the node has, with a back-off for each volume.

A pod does not wait for it (the kubelet's UnmountDevice). A pod that gets the volume meanwhile has it staged anew. The
staging records on disk tell what is left to do, so a kill loses nothing. Runs in the actor's mailbox thread.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable

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

LOOK_AGAIN_S = 30.0
"""Shortest time between two looks for volumes whose driver is not registered: their directories may be gone."""


class Unstaging:
    """The volumes that are being unstaged."""

    def __init__(self, actor: Actor, pool: Pool, registry: Registry, locks: VolumeLocks, in_use: InUse) -> None:
        self._actor, self._pool, self._registry, self._locks = actor, pool, registry, locks
        self.in_use = in_use
        self._errors: dict[Staged, str] = {}
        """The last error of each volume in work."""
        self._pauses: dict[Staged, Future[bool]] = {}
        """Of volumes between two tries; the value tells whether to try again."""
        self._due = self._looking = self._due_later = False
        self._looked = -math.inf
        """Monotonic seconds of the last look."""
        self._doubts: frozenset[str] = frozenset()
        """Errors of unreadable records at the last look."""
        self._doubtful_looks = 0
        """Looks in a row that found such records."""
        in_use.on_leaving = self.look

    def describe(self) -> dict[str, str]:
        """Errors of volumes that cannot be unstaged now, by handle."""
        return {one.handle: error for one, error in self._errors.items() if error}

    def look(self) -> None:
        """Look soon for staged volumes that no pod has, and unstage them; called after each change."""
        if not self._due:
            self._due = True
            self._actor.post(self._begin, name="unstage")

    def driver_registered(self, driver: str) -> None:
        """Retry at once what waits for this driver."""
        for one, pause in list(self._pauses.items()):
            if one.driver == driver and self._errors[one] == csi.not_registered(driver):
                pause.set(True)

    def _begin(self) -> None:
        if not self._looking:
            self._looking = True
            self._actor.spawn(self._look(), "unstage")

    async def _look(self) -> None:
        failures, last = 0, ""
        try:
            while self._due:
                self._due = False
                left = self.in_use.leaving
                outcome, stuck_pid = await self._outcome_of(lambda: self._pool.run(CsiStaged()))
                self._looked = time.monotonic()
                if outcome.error:
                    if outcome.error != last:
                        log.warning("cannot list the staged volumes: %s; trying again", outcome.error)
                    self._due, failures, last = True, failures + 1, outcome.error
                    if stuck_pid:
                        await self._gone(stuck_pid)
                    else:
                        await self._actor.sleep(policy.RETRY.delay_s(failures))
                    continue
                failures, last = 0, ""
                self._doubt(frozenset(outcome.unreadable))
                if not outcome.unreadable:
                    self.in_use.settle(left, outcome.staged)
                    self._end_all_but(outcome.unused)
                for one in outcome.unused:
                    if one not in self._errors:
                        self._errors[one] = ""
                        self._actor.spawn(self._unstage(one), "unstage")
        finally:
            self._looking = False

    def _doubt(self, doubts: frozenset[str]) -> None:
        """Look again later while records are unreadable: descriptors or the disk may have failed for a moment."""
        for error in sorted(doubts - self._doubts):
            log.error("%s; its volume stays staged, and no staged volume is reported as no longer in use", error)
        self._doubts = doubts
        self._doubtful_looks = self._doubtful_looks + 1 if doubts else 0
        if doubts and not self._due_later:
            self._due_later = True
            self._actor.after(policy.RETRY.delay_s(self._doubtful_looks), self._look_later)

    def _look_later(self) -> None:
        self._due_later = False
        self.look()

    def _end_all_but(self, unused: Iterable[Staged]) -> None:
        """End the pauses of volumes that are staged no more, or in use again."""
        for one in self._pauses.keys() - set(unused):
            self._pauses[one].set(False)

    async def _unstage(self, one: Staged) -> None:
        failures, again = 0, True
        try:
            while again:
                async with self._locks.held(one.driver, one.handle, unstage=True):
                    outcome, stuck_pid = await self._try(one)
                if not outcome.error:
                    break
                failures += 1
                if outcome.error != self._errors[one]:
                    log.error('UnmountDevice failed for volume "%s" : %s', one.handle, outcome.error)
                self._errors[one] = outcome.error
                if stuck_pid:
                    await self._gone(stuck_pid)
                else:
                    again = await self._pause(one, policy.RETRY.delay_s(failures))
        finally:
            del self._errors[one]
            self.look()

    async def _try(self, one: Staged) -> tuple[Outcome, int]:
        socket = self._registry.endpoint(one.driver)
        if socket:
            return await self._outcome_of(lambda: self._pool.run(CsiUnstage(one, socket), dedicated=True))
        if time.monotonic() - self._looked >= LOOK_AGAIN_S:
            self.look()
        return Outcome(csi.not_registered(one.driver)), 0

    async def _outcome_of(self, run: Callable[[], Future[tuple[Outcome, ...]]]) -> tuple[Outcome, int]:
        """The outcome of a step, and the PID of its helper if the kernel keeps it."""
        try:
            (outcome,) = await run()
        except HelperHung as hung:
            return Outcome(policy.NOT_IN_TIME), hung.pid
        except HelperGone as gone:
            return Outcome(str(gone)), 0
        return outcome, 0

    async def _pause(self, one: Staged, delay_s: float) -> bool:
        """Wait for the next try; False when there is nothing left to do."""
        pause: Future[bool] = Future()
        self._pauses[one] = pause
        timer = self._actor.sleep(delay_s)
        try:
            await first_of(pause, timer)
        finally:
            del self._pauses[one]
            timer.cancel()
        return pause.result(0) if pause.done() else True

    async def _gone(self, stuck_pid: int) -> None:
        """Wait until the kernel lets the helper go: meanwhile nothing touches the volume."""
        gone: Future[None] = Future()
        self._pool.when_gone(stuck_pid, lambda: gone.set(None))
        await gone
