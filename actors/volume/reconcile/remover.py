"""Taking a pod's volumes away, once its last container is gone: what drivers published first, then what is on disk.

Runs in the actor's mailbox thread; helpers do it, a slice of time at a time.
"""

from __future__ import annotations

from functools import partial

from actors._base import Actor, Semaphore
from actors.volume.csi.blocking.mounter import CsiFailed, Mounter
from actors.volume.decide.volume_state import PodVolumes
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.reconcile.devices import Devices
from actors.volume.reconcile.failure_reporter import LookAgain, RemovalFailed, Trouble
from actors.volume.steps.codec import TearDown

SLICE_S = 0.05
"""A removal gives its helper back so often, so that removals take turns however large they are."""
SLICE_PAUSE_S = 0.002
"""Between slices: a removal that makes no headway does not spin."""
REMOVALS_AT_ONCE = 2


class Remover:
    """See the module."""

    def __init__(
        self, actor: Actor, pool: Pool, mounter: Mounter, devices: Devices, trouble: Trouble, look_again: LookAgain
    ) -> None:
        self._actor, self._pool, self._csi, self._devices = actor, pool, mounter, devices
        self._trouble, self._look_again = trouble, look_again
        self._removals = Semaphore(REMOVALS_AT_ONCE)

    async def take_down(self, uid: str, pod: PodVolumes) -> None:
        """Remove all of the pod's volumes, once what is under way has come to an end. Raises RemovalFailed."""
        pod.give_up()
        pod.users += 1
        try:
            async with pod.turn:
                if pod.stuck_pid:
                    raise RemovalFailed(pod.error)
                if pod.csi:
                    await self._unpublish(uid, pod)
                await self._remove(uid, pod)
                pod.actual.clear()
                pod.persistent.clear()
                self._devices.release(*pod.devices)
                pod.devices.clear()
                pod.on_disk, pod.error = False, ""
        except RemovalFailed as failure:
            pod.error = str(failure)
            raise
        finally:
            pod.users -= 1

    async def _unpublish(self, uid: str, pod: PodVolumes) -> None:
        try:
            await self._csi.unmount_all(uid, pod, partial(self._look_again, uid, pod))
        except CsiFailed as failure:
            if failure.hung is not None and failure.hung.pid:
                self._trouble.removal_hung(uid, pod, failure.hung)
            raise RemovalFailed(str(failure)) from None
        for known in (pod.published, pod.sizes, pod.again, pod.growing, pod.told_grown):
            known.clear()

    async def _remove(self, uid: str, pod: PodVolumes) -> None:
        more = True
        while more:
            try:
                async with self._removals:
                    (outcome,) = await self._pool.run(TearDown(uid, SLICE_S))
            except HelperHung as hung:
                self._trouble.removal_hung(uid, pod, hung)
                raise RemovalFailed(pod.error) from None
            except HelperGone as gone:
                raise RemovalFailed(f"cannot remove the volumes of pod {uid}: {gone}") from None
            for name in [name for name, one in pod.actual.items() if not one.stuck_pid]:
                del pod.actual[name]  # half removed is not mounted
            if outcome.kept_pid:
                self._pool.adopt(outcome.kept_pid)
                self._trouble.removal_hung(uid, pod, HelperHung(0, "", outcome.kept_since, outcome.kept_pid))
                raise RemovalFailed(pod.error)
            if outcome.error:
                raise RemovalFailed(outcome.error)
            more = outcome.more
            if more:
                await self._actor.sleep(SLICE_PAUSE_S)
