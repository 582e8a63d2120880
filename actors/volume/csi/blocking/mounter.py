"""What is under way with the drivers: one call at a time for each volume, a few for each driver.

Runs in the actor's mailbox thread. A pod's other volumes come up meanwhile; who asked for the pod is told after
PATIENCE_S what does not answer, and hears of it when it does.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

from actors._base import Actor, Semaphore, first_of
from actors.volume import policy
from actors.volume.csi.registry import Registry
from actors.volume.decide.volume_state import AtWork, PodVolumes
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.steps.codec import Outcome
from actors.volume.steps.csi import CsiFind, CsiMount, CsiUnmount, Volume

PATIENCE_S = 8.0
WIDTH = 8
"""Calls at once for each driver."""


class CsiFailed(Exception):
    """A pod's CSI volumes cannot be removed now; the message is the kubelet's. `hung`: the kernel keeps a helper."""

    def __init__(self, message: str, hung: HelperHung | None = None) -> None:
        super().__init__(message)
        self.hung = hung


class Mounter:
    """See the module."""

    def __init__(self, actor: Actor, pool: Pool, registry: Registry) -> None:
        self._actor, self._pool, self._registry = actor, pool, registry
        self._volumes: dict[tuple[str, str], tuple[Semaphore, int]] = {}
        """A gate for each volume that somebody is at, and how many are."""
        self._drivers: dict[str, Semaphore] = {}

    def begin(self, pod: PodVolumes, name: str, work: Coroutine[Any, None, None], after: Callable[[], object]) -> None:
        """Have it done beside everything else; `name` is at work until it is over, then `after` is called."""

        async def whole() -> None:
            try:
                await work
            finally:
                del pod.at_work[name]
                after()

        pod.at_work[name] = one = AtWork(time.time())
        one.task = self._actor.spawn(whole(), f"csi {name}")

    async def mount(self, step: CsiMount) -> Outcome:
        """Raises HelperGone, HelperHung."""
        async with self._alone(step.volume):
            (outcome,) = await self._pool.run(step, own=True)
            return outcome

    async def in_time(self, pod: PodVolumes, names: Iterable[str] | None = None) -> dict[str, float]:
        """Wait a while for what is under way; what then still is, and since when (Unix seconds)."""
        wanted = set(pod.at_work if names is None else names)
        deadline = time.monotonic() + PATIENCE_S
        while wanted & pod.at_work.keys() and (left_s := deadline - time.monotonic()) > 0:
            name = next(iter(wanted & pod.at_work.keys()))
            await first_of(pod.at_work[name].task, self._actor.sleep(left_s))
        return {name: pod.at_work[name].since for name in wanted & pod.at_work.keys()}

    async def unmount_all(self, uid: str, pod: PodVolumes, after: Callable[[], object]) -> None:
        """Take from the pod what drivers published to it. Raises CsiFailed; what is under way goes on.

        `after` is called whenever one of them has come to an end.
        """
        self._complain(await self.in_time(pod), {})
        try:
            (outcome,) = await self._pool.run(CsiFind(uid))
        except HelperGone as gone:
            raise CsiFailed(f"cannot remove the volumes of pod {uid}: {gone}") from None
        except HelperHung as hung:
            text = policy.tear_down_message(hung.name, policy.silence({hung.name: hung.since}, time.time()))
            raise CsiFailed(text, hung) from None
        if outcome.error:
            raise CsiFailed(outcome.error)
        errors: dict[str, CsiFailed] = {}
        for volume in outcome.csi:
            self.begin(pod, volume.spec_name, self._unmount(volume, errors), after)
        self._complain(await self.in_time(pod), errors)

    def _complain(self, silent: dict[str, float], errors: dict[str, CsiFailed]) -> None:
        for error in errors.values():
            raise error
        for name in sorted(silent):
            raise CsiFailed(policy.tear_down_message(name, policy.silence(silent, time.time())))

    async def _unmount(self, volume: Volume, errors: dict[str, CsiFailed]) -> None:
        name = volume.spec_name
        try:
            async with self._alone(volume):
                step = CsiUnmount(volume, self._registry.endpoint(volume.driver))
                (outcome,) = await self._pool.run(step, own=True)
            if outcome.error:
                errors[name] = CsiFailed(policy.tear_down_message(name, outcome.error))
        except HelperHung as hung:
            text = policy.tear_down_message(name, policy.silence({name: hung.since}, time.time()))
            errors[name] = CsiFailed(text, hung)
        except HelperGone as gone:
            errors[name] = CsiFailed(policy.tear_down_message(name, str(gone)))

    @asynccontextmanager
    async def _alone(self, volume: Volume) -> AsyncIterator[None]:
        """The driver's attention, and nobody else at the volume: staging and unstaging must not cross."""
        key = (volume.driver, volume.handle)
        gate, users = self._volumes.get(key, (Semaphore(1), 0))
        self._volumes[key] = (gate, users + 1)
        try:
            async with gate, self._drivers.setdefault(volume.driver, Semaphore(WIDTH)):
                yield
        finally:
            gate, users = self._volumes.pop(key)
            if users > 1:
                self._volumes[key] = (gate, users - 1)
