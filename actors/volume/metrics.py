"""Figures of volumes: measured when somebody asks, by a niced helper, and kept for volumeStatsAggPeriod."""

from __future__ import annotations

import logging
import time

import msgspec

from actors._base import Gate
from actors.volume.book import PodVolumes
from actors.volume.csi.registry import Registry
from actors.volume.csi.steps import CsiMeasure
from actors.volume.pool import HelperGone, HelperHung, Pool
from actors.volume.steps import Measure
from proto.volume import PodVolumeUsage, VolumeUsages

log = logging.getLogger(__name__)


class Metrics:
    """State: the latest figures of each pod. Runs in the mailbox thread."""

    def __init__(self, pool: Pool, registry: Registry, pods: dict[str, PodVolumes], period_s: float) -> None:
        """`period_s`: how old figures may be; negative: nothing is measured."""
        self._pool, self._registry, self._pods, self._period_s = pool, registry, pods, period_s
        self._latest: dict[str, PodVolumeUsage] = {}
        self._silent: set[str] = set()
        """Pods with a volume that keeps a helper in the kernel."""
        self._alone = Gate(1)

    async def usages(self) -> VolumeUsages:
        """Of every pod that has anything on disk."""
        if self._period_s < 0:
            return VolumeUsages()
        async with self._alone:
            self._latest = {uid: one for uid, one in self._latest.items() if uid in self._pods}
            due = [uid for uid, pod in self._pods.items() if pod.on_disk and self._is_due(uid)]
            left = due
            while left:
                left = await self._measure(left)
            await self._ask_drivers(due)
            return VolumeUsages(pods=tuple(self._latest.values()))

    def _is_due(self, uid: str) -> bool:
        latest = self._latest.get(uid)
        old = latest is None or not 0 <= time.time() - latest.time < self._period_s
        return old and uid not in self._silent

    async def _measure(self, uids: list[str]) -> list[str]:
        """Measure these; those that are left to do."""
        now = time.time()
        try:
            outcomes = await self._pool.run(*(Measure(uid) for uid in uids), niced=True)
        except HelperHung as hung:
            uid = uids[hung.index]
            log.warning("cannot measure the volumes of pod %s: %s does not answer", uid, hung.name)
            self._latest.pop(uid, None)
            if hung.pid:
                self._silent.add(uid)
                self._pool.when_gone(hung.pid, lambda: self._silent.discard(uid))
            return [one for one in uids if one != uid]
        except HelperGone as gone:
            log.warning("cannot measure volumes: %s", gone)
            return []
        for uid, outcome in zip(uids, outcomes, strict=True):
            if outcome.error:
                log.warning("cannot measure the volumes of pod %s: %s", uid, outcome.error)
            else:
                self._latest[uid] = PodVolumeUsage(pod_uid=uid, time=now, volumes=outcome.usages)
        return []

    async def _ask_drivers(self, uids: list[str]) -> None:
        """Add what CSI drivers say. A driver that does not answer about one volume is not asked about others now."""
        silent: set[str] = set()
        for uid in uids:
            pod = self._pods.get(uid)
            for name, volume in list(pod.published.items()) if pod is not None else ():
                endpoint = self._registry.endpoint(volume.driver)
                if not endpoint or volume.driver in silent or name in (pod.at_work if pod is not None else ()):
                    continue
                try:
                    (outcome,) = await self._pool.run(CsiMeasure(volume, name, endpoint), niced=True)
                    error = outcome.error
                except (HelperGone, HelperHung) as gone:
                    error = str(gone)
                if error:
                    log.warning("cannot measure volume %s of pod %s: %s", name, uid, error)
                    silent.add(volume.driver)
                elif uid in self._latest:
                    latest = self._latest[uid]
                    volumes = (*latest.volumes, *outcome.usages)
                    self._latest[uid] = msgspec.structs.replace(latest, volumes=volumes)
