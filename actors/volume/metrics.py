"""Figures of volumes: measured when somebody asks, by a niced helper, and kept for volumeStatsAggPeriod."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from functools import partial

import msgspec

from actors._base import Semaphore
from actors._metrics.kubelet import VOLUME_METRIC_SECONDS
from actors.volume.csi.registry import Registry
from actors.volume.decide import claims
from actors.volume.decide.volume_state import PodVolumes
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.steps.codec import MOUNTED_PLUGINS, Measure, MeasureMount, Outcome
from actors.volume.steps.csi import CsiMeasure
from proto.pods.volume import PodVolumeUsage, VolumeUsages

log = logging.getLogger(__name__)

SILENT_S = 600.0
"""A mount that did not answer is left in peace for so long: each try keeps whoever asks waiting for seconds."""


class Metrics:
    """State: the latest figures of each pod. Runs in the mailbox thread."""

    def __init__(self, pool: Pool, registry: Registry, pods: dict[str, PodVolumes], period_s: float) -> None:
        """`period_s`: how old figures may be; negative: nothing is measured."""
        self._pool, self._registry, self._pods, self._period_s = pool, registry, pods, period_s
        self._latest: dict[str, PodVolumeUsage] = {}
        self._silent: set[str] = set()
        """Pods with a volume that keeps a helper in the kernel."""
        self._not_before: dict[str, float] = {}
        """When a mounted volume that did not answer may be asked again, in monotonic seconds, by its path."""
        self._alone = Semaphore(1)

    async def usages(self) -> VolumeUsages:
        """Of every pod that has anything on disk."""
        if self._period_s < 0:
            return VolumeUsages()
        async with self._alone:
            self._latest = {uid: one for uid, one in self._latest.items() if uid in self._pods}
            due = [uid for uid, pod in self._pods.items() if pod.on_disk and self._is_due(uid)]
            left, measured = due, set[str]()
            while left:
                left = await self._measure(left, measured)
            # Figures of before that could not be renewed have those of mounts and drivers already.
            anew = [uid for uid in due if uid in measured]
            await self._ask_mounts(anew)
            await self._ask_drivers(anew)
            return VolumeUsages(pods=tuple(self._latest.values()))

    def _is_due(self, uid: str) -> bool:
        latest = self._latest.get(uid)
        old = latest is None or not 0 <= time.time() - latest.time < self._period_s
        return old and uid not in self._silent

    async def _measure(self, uids: list[str], measured: set[str]) -> list[str]:
        """Measure these, and add those that were; those that are left to do."""
        now, began = time.time(), time.monotonic()
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
        VOLUME_METRIC_SECONDS.observe(time.monotonic() - began, "local")
        for uid, outcome in zip(uids, outcomes, strict=True):
            if outcome.error:
                log.warning("cannot measure the volumes of pod %s: %s", uid, outcome.error)
            else:
                self._latest[uid] = PodVolumeUsage(pod_uid=uid, time=now, volumes=outcome.usages)
                measured.add(uid)
        return []

    async def _ask_mounts(self, uids: list[str]) -> None:
        """Add what the file systems say that are mounted for claims and exports. One that is silent is left out."""
        steps = [step for uid in uids for step in self._mounts(uid)]
        outcomes: tuple[Outcome, ...] = ()
        while steps and not outcomes:
            try:
                outcomes = await self._pool.run(*steps, niced=True)
            except HelperHung as hung:
                step = steps.pop(hung.index)
                log.warning("cannot measure volume %s of pod %s: it does not answer", step.name, step.uid)
                self._not_before[step.path] = math.inf if hung.pid else time.monotonic() + SILENT_S
                if hung.pid:
                    self._pool.when_gone(hung.pid, partial(self._ask_again, step.path))
            except HelperGone as gone:
                log.warning("cannot measure volumes: %s", gone)
                return
        for step, outcome in zip(steps, outcomes, strict=True):
            if outcome.error:
                log.warning("cannot measure volume %s of pod %s: %s", step.name, step.uid, outcome.error)
            self._add(step.uid, step.name, outcome)

    def _ask_again(self, path: str) -> None:
        self._not_before.pop(path, None)

    def _mounts(self, uid: str) -> Iterator[MeasureMount]:
        pod = self._pods.get(uid)
        for name, one in pod.actual.items() if pod is not None else ():
            of_others = any(f"/volumes/{plugin}/" in one.path for plugin in MOUNTED_PLUGINS)
            answers = one.mounted and not one.stuck_pid and not one.silent
            if of_others and answers and self._not_before.get(one.path, 0.0) <= time.monotonic():
                yield MeasureMount(uid, name, one.path)

    def _add(self, uid: str, name: str, outcome: Outcome) -> None:
        latest, pod = self._latest.get(uid), self._pods.get(uid)
        if latest is None or pod is None:
            return
        wanted = pod.wanted.get(name)
        claim = claims.claim_name(pod.pod, wanted.volume) if pod.pod is not None and wanted is not None else ""
        more = tuple(msgspec.structs.replace(one, claim=claim) for one in outcome.usages)
        self._latest[uid] = msgspec.structs.replace(latest, volumes=(*latest.volumes, *more))

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
                else:
                    self._add(uid, name, outcome)
