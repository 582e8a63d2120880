"""Calls to CSI drivers that mount and unmount, under the locks of `drivers/locks.py`.

Runs in the actor's mailbox thread. A pod's other volumes are set up meanwhile. A call that takes longer than PATIENCE_S
makes the request fail, and goes on; pod_workers is told of its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from actors._base import Actor, first_of
from actors.volume import policy
from actors.volume.drivers.locks import VolumeLocks
from actors.volume.drivers.registry import Registry
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.reconcile.volume_state import DriverCall, PodVolumes
from actors.volume.steps.codec import Outcome
from actors.volume.steps.csi import CsiFind, CsiMount, CsiUnmount, Volume
from actors.volume.steps.errors import tear_down_message

PATIENCE_S = 8.0


class CsiFailed(Exception):
    """A pod's CSI volumes cannot be removed now; the message is the kubelet's. `hung`: a helper is stuck."""

    def __init__(self, message: str, hung: HelperHung | None = None) -> None:
        super().__init__(message)
        self.hung = hung


class Mounter:
    """Runs mount and unmount calls in dedicated helpers."""

    def __init__(self, actor: Actor, pool: Pool, registry: Registry, locks: VolumeLocks) -> None:
        self._actor, self._pool, self._registry, self._locks = actor, pool, registry, locks

    def start(self, pod: PodVolumes, name: str, work: Coroutine[Any, None, None], after: Callable[[], object]) -> None:
        """Run `work` concurrently as the driver call of the volume `name`, then call `after`."""

        async def whole() -> None:
            try:
                await work
            finally:
                del pod.driver_calls[name]
                after()

        pod.driver_calls[name] = one = DriverCall(time.time())
        one.task = self._actor.spawn(whole(), f"csi {name}")

    async def mount(self, step: CsiMount) -> Outcome:
        """Mount a volume. Raises HelperGone, HelperHung."""
        async with self._locks.held(step.volume.driver, step.volume.handle):
            (outcome,) = await self._pool.run(step, dedicated=True)
            return outcome

    async def wait(self, pod: PodVolumes, names: Iterable[str] | None = None) -> dict[str, float]:
        """Wait at most PATIENCE_S for calls; returns the unfinished ones, with Unix seconds of their start."""
        wanted = set(pod.driver_calls if names is None else names)
        deadline = time.monotonic() + PATIENCE_S
        while wanted & pod.driver_calls.keys() and (left_s := deadline - time.monotonic()) > 0:
            name = next(iter(wanted & pod.driver_calls.keys()))
            await first_of(pod.driver_calls[name].task, self._actor.sleep(left_s))
        return {name: pod.driver_calls[name].since for name in wanted & pod.driver_calls.keys()}

    async def unmount_all(self, uid: str, pod: PodVolumes, after: Callable[[], object]) -> None:
        """Unpublish all of the pod's CSI volumes. Raises CsiFailed, while unfinished calls go on.

        `after` is called at the end of each call.
        """
        self._raise_failures(await self.wait(pod), {})
        try:
            (outcome,) = await self._pool.run(CsiFind(uid))
        except HelperGone as gone:
            raise CsiFailed(f"cannot remove the volumes of pod {uid}: {gone}") from None
        except HelperHung as hung:
            text = tear_down_message(hung.name, policy.unresponsive_message({hung.name: hung.since}, time.time()))
            raise CsiFailed(text, hung) from None
        if outcome.error:
            raise CsiFailed(outcome.error)
        errors: dict[str, CsiFailed] = {}
        for volume in outcome.csi_volumes:
            self.start(pod, volume.spec_name, self._unmount(volume, errors), after)
        self._raise_failures(await self.wait(pod), errors)

    def _raise_failures(self, silent: dict[str, float], errors: dict[str, CsiFailed]) -> None:
        for error in errors.values():
            raise error
        for name in sorted(silent):
            raise CsiFailed(tear_down_message(name, policy.unresponsive_message(silent, time.time())))

    async def _unmount(self, volume: Volume, errors: dict[str, CsiFailed]) -> None:
        name = volume.spec_name
        try:
            async with self._locks.held(volume.driver, volume.handle):
                step = CsiUnmount(volume, self._registry.endpoint(volume.driver))
                (outcome,) = await self._pool.run(step, dedicated=True)
            if outcome.error:
                errors[name] = CsiFailed(tear_down_message(name, outcome.error))
        except HelperHung as hung:
            text = tear_down_message(name, policy.unresponsive_message({name: hung.since}, time.time()))
            errors[name] = CsiFailed(text, hung)
        except HelperGone as gone:
            errors[name] = CsiFailed(tear_down_message(name, str(gone)))
