"""Removes a pod's volumes after its last container: unpublishes CSI volumes first, then deletes directories.

Runs in the actor's mailbox thread; helpers do the work in slices of time.
"""

from __future__ import annotations

from functools import partial

from actors._base import Actor, Semaphore
from actors.volume.drivers.unstaging import Unstaging
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.reconcile.devices import Devices
from actors.volume.reconcile.failure_reporter import FailureReporter, Recheck, RemovalFailed
from actors.volume.reconcile.mounter import CsiFailed, Mounter
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.steps.volumes import TearDown

SLICE_S = 0.05
"""Time after which a removal gives its helper back, so that large removals alternate."""
SLICE_PAUSE_S = 0.002
"""Pause between slices, so that a removal without progress does not spin."""
REMOVALS_AT_ONCE = 2


class Remover:
    """Removes volumes, of REMOVALS_AT_ONCE pods at a time."""

    def __init__(
        self,
        actor: Actor,
        pool: Pool,
        mounter: Mounter,
        devices: Devices,
        unstaging: Unstaging,
        reporter: FailureReporter,
        recheck: Recheck,
    ) -> None:
        self._actor, self._pool, self._csi, self._devices, self._unstaging = actor, pool, mounter, devices, unstaging
        self._reporter, self._recheck = reporter, recheck
        self._removals = Semaphore(REMOVALS_AT_ONCE)

    async def take_down(self, uid: str, pod: PodVolumes) -> None:
        """Remove all of the pod's volumes, after the steps in work. Raises RemovalFailed."""
        pod.withdraw()
        self._pool.withdraw(uid)
        pod.requests += 1
        try:
            async with pod.lock:
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
            pod.requests -= 1

    async def _unpublish(self, uid: str, pod: PodVolumes) -> None:
        try:
            await self._csi.unmount_all(uid, pod, partial(self._recheck, uid, pod))
        except CsiFailed as failure:
            if failure.hung is not None and failure.hung.pid:
                self._reporter.removal_hung(uid, pod, failure.hung)
            raise RemovalFailed(str(failure)) from None
        finally:
            self._unstaging.look()
        pod.forget_published()
        pod.csi = False

    async def _remove(self, uid: str, pod: PodVolumes) -> None:
        more = True
        while more:
            try:
                async with self._removals:
                    (outcome,) = await self._pool.run(TearDown(uid, SLICE_S))
            except HelperHung as hung:
                self._reporter.removal_hung(uid, pod, hung)
                raise RemovalFailed(pod.error) from None
            except HelperGone as gone:
                raise RemovalFailed(f"cannot remove the volumes of pod {uid}: {gone}") from None
            for name in [name for name, one in pod.actual.items() if not one.stuck_pid]:
                del pod.actual[name]  # half removed is not mounted
            if outcome.stuck_pid:
                self._pool.adopt(outcome.stuck_pid)
                self._reporter.removal_hung(uid, pod, HelperHung(0, "", outcome.stuck_since, outcome.stuck_pid))
                raise RemovalFailed(pod.error)
            if outcome.error:
                raise RemovalFailed(outcome.error)
            more = outcome.more
            if more:
                await self._actor.sleep(SLICE_PAUSE_S)
