"""Usage figures of volumes: measured by a niced helper on request, and kept for volumeStatsAggPeriod.

CSI drivers are asked without a request, too, about once in that period: they may watch their volumes by it.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import msgspec

from actors._base import Actor, Semaphore, gather
from actors._base.keyed_locks import KeyedLocks
from actors._host.files.paths import VOLUME_DEVICES
from actors._metrics.kubelet import VOLUME_METRIC_SECONDS
from actors.volume.csi import policy as csi
from actors.volume.drivers.registry import Registry
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.plugins import binding
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.steps.codec import Outcome
from actors.volume.steps.csi import CsiMeasure, Volume
from actors.volume.steps.places import LOCAL_VOLUME, MOUNTED_PLUGINS
from actors.volume.steps.volumes import LongWalk, Measure, MeasureMount, in_order
from proto.common.until import Until
from proto.pods.volume import PodVolumeUsage, VolumeUsages

log = logging.getLogger(__name__)

WALK_S = 18.0
"""For all walks through volumes of one measurement: an eviction that waits for the figures cannot wait longer."""
DRIVER_S = 10.0
"""A driver is not asked about further volumes after so long. The last one takes at most MEASURE_S of csi/operations.py.
The askers wait 25 s for all figures."""
JITTER = 0.5
"""Of the period in which drivers are asked without a request."""
SILENT_S = 600.0
"""Pause before a mount that did not answer is measured again: each try delays the answer by seconds."""

Add = Callable[[str, str, Outcome], None]
"""Takes the figures of a volume: the pod's UID, the name in the pod, the outcome."""


class Metrics:
    """The latest figures of each pod. Runs in the mailbox thread."""

    def __init__(
        self, actor: Actor, pool: Pool, registry: Registry, pods: dict[str, PodVolumes], period_s: float
    ) -> None:
        """`period_s`: longest age of figures in seconds; negative: nothing is measured."""
        self._actor = actor
        self._pool, self._registry, self._pods, self._period_s = pool, registry, pods, period_s
        self._latest: dict[str, PodVolumeUsage] = {}
        self._walks: dict[str, dict[str, LongWalk]] = {}
        """By pod and volume, for the next measurement to go on with. Kept here, as each has a new helper."""
        self._measurements = 0
        self._blocked_pods: set[str] = set()
        """UIDs of pods with a volume that keeps a helper in the kernel."""
        self._not_before: dict[str, float] = {}
        """Monotonic seconds from when a mount that did not answer may be measured again, by path."""
        self._driver_figures: dict[tuple[str, str], Outcome] = {}
        """The last ones of CSI volumes, by the pod's UID and the name in the pod."""
        self._driver_asked: dict[tuple[str, str], float] = {}
        """Monotonic seconds of the last question about them."""
        self._driver_errors: dict[tuple[str, str], tuple[str, str]] = {}
        """Driver and error of volumes whose last question failed."""
        self._drivers: KeyedLocks[str] = KeyedLocks()
        self._lock = Semaphore(1)
        """Of answers. Periodic questions do not take it, since slow drivers would hold up all answers."""

    def start(self) -> None:
        """Ask drivers periodically. Without CSI volumes each period costs one look at the pods."""
        if self._period_s > 0:
            self._actor.every(Until(self._period_s, JITTER), self._ask_drivers, "csi usage")

    async def _ask_drivers(self) -> None:
        if not any(pod.published for pod in self._pods.values()):
            return
        self._forget_gone()
        await self._measure_drivers(self._pods, _keep)

    async def usages(self) -> VolumeUsages:
        """Figures of every pod that has volumes on disk."""
        if self._period_s < 0:
            return VolumeUsages()
        async with self._lock:
            self._forget_gone()
            due = [uid for uid, pod in self._pods.items() if pod.on_disk and self._is_due(uid)]
            self._measurements += bool(due)  # not with each question: their number in a period may always be the same
            left, measured = in_order(due, self._walks, self._measurements), set[str]()
            while left:
                left = await self._measure(left, measured)
            # Older figures that could not be renewed already include mounts and drivers.
            anew = [uid for uid in due if uid in measured]
            await self._measure_mounts(anew)
            await self._measure_drivers(anew, self._add)
            return VolumeUsages(pods=tuple(self._latest.values()))

    def _forget_gone(self) -> None:
        self._latest = {uid: one for uid, one in self._latest.items() if uid in self._pods}
        self._walks = {uid: walks for uid, walks in self._walks.items() if uid in self._pods}
        now = time.monotonic()
        self._not_before = {path: when for path, when in self._not_before.items() if when > now}
        for known in (self._driver_figures, self._driver_asked, self._driver_errors):
            for key in [key for key in known if key[0] not in self._pods]:
                del known[key]

    def _is_due(self, uid: str) -> bool:
        latest = self._latest.get(uid)
        old = latest is None or not 0 <= time.time() - latest.time < self._period_s
        return old and uid not in self._blocked_pods

    async def _measure(self, uids: list[str], measured: set[str]) -> list[str]:
        """Measure these pods and add their UIDs to `measured`; returns the pods left to measure."""
        now, began = time.time(), time.monotonic()
        number = self._measurements // max(1, len(self._walks))  # the next one when each pod was the first once
        steps = [Measure(uid, began + WALK_S, self._walks.get(uid, {}), number) for uid in uids]
        try:
            outcomes = await self._pool.run(*steps, niced=True)
        except HelperHung as hung:
            uid = uids[hung.index]
            log.warning("cannot measure the volumes of pod %s: %s does not answer", uid, hung.name)
            self._latest.pop(uid, None)
            if hung.pid:
                self._blocked_pods.add(uid)
                self._pool.when_gone(hung.pid, lambda: self._blocked_pods.discard(uid))
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
                self._walks.pop(uid, None)
                if outcome.walks:
                    self._walks[uid] = outcome.walks
                measured.add(uid)
        return []

    async def _measure_mounts(self, uids: list[str]) -> None:
        """Add the figures of NFS exports, and of file systems and raw devices of claims, except hanging ones."""
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
                    self._pool.when_gone(hung.pid, partial(self._allow, step.path))
            except HelperGone as gone:
                log.warning("cannot measure volumes: %s", gone)
                return
        for step, outcome in zip(steps, outcomes, strict=True):
            if outcome.error:
                log.warning("cannot measure volume %s of pod %s: %s", step.name, step.uid, outcome.error)
            self._add(step.uid, step.name, outcome)

    def _allow(self, path: str) -> None:
        self._not_before.pop(path, None)

    def _mounts(self, uid: str) -> Iterator[MeasureMount]:
        pod = self._pods.get(uid)
        own = f"/pods/{uid}"  # no hostPath has this: who writes it does not know the pod's UID
        for name, one in pod.actual.items() if pod is not None else ():
            block = f"{own}/{VOLUME_DEVICES}/{LOCAL_VOLUME}/" in one.path
            of_others = block or any(f"{own}/volumes/{plugin}/" in one.path for plugin in MOUNTED_PLUGINS)
            answers = one.mounted and not one.stuck_pid and not one.unresponsive
            if of_others and answers and self._not_before.get(one.path, 0.0) <= time.monotonic():
                yield MeasureMount(uid, name, one.path, block)

    def _add(self, uid: str, name: str, outcome: Outcome) -> None:
        latest, pod = self._latest.get(uid), self._pods.get(uid)
        if latest is None or pod is None:
            return
        wanted = pod.wanted.get(name)
        claim = binding.claim_name(pod.pod, wanted.volume) if pod.pod is not None and wanted is not None else ""
        more = tuple(msgspec.structs.replace(one, claim=claim) for one in outcome.usages)
        self._latest[uid] = msgspec.structs.replace(latest, volumes=(*latest.volumes, *more))

    async def _measure_drivers(self, uids: Iterable[str], add: Add) -> None:
        """`add` the figures of CSI drivers. All drivers are asked at the same time, so that none waits for another."""
        by_driver: dict[str, list[tuple[str, str, Volume]]] = {}
        for uid in uids:
            pod = self._pods.get(uid)
            for name, volume in pod.published.items() if pod is not None else ():
                by_driver.setdefault(volume.driver, []).append((uid, name, volume))
        each = [self._measure_in_turn(driver, volumes, add) for driver, volumes in by_driver.items()]
        await gather(*[self._actor.spawn(one, "csi usage") for one in each])

    async def _measure_in_turn(self, driver: str, volumes: list[tuple[str, str, Volume]], add: Add) -> None:
        deadline = time.monotonic() + DRIVER_S
        async with self._drivers.lock(driver):
            await self._measure_driver(volumes, add, deadline)

    async def _measure_driver(self, volumes: list[tuple[str, str, Volume]], add: Add, deadline: float) -> None:
        """`add` one driver's figures, while it answers; of each volume the pod's UID and the name in the pod.

        The volumes that were asked about longest ago come first. The others keep their last figures, as do volumes that
        were asked about within the period.
        """
        left = deque(sorted(volumes, key=lambda one: self._driver_asked.get(one[:2], -math.inf)))
        while left and self._is_driver_due(left[0]) and time.monotonic() <= deadline:
            uid, name, volume = left.popleft()
            pod, endpoint = self._pods.get(uid), self._registry.endpoint(volume.driver)
            if pod is None or not endpoint or name in pod.driver_calls:
                continue
            self._driver_asked[uid, name] = began = time.monotonic()
            try:
                (outcome,) = await self._pool.run(CsiMeasure(volume, name, endpoint), niced=True)
                error, answers = outcome.error, not csi.is_unresponsive(outcome.error)
            except (HelperGone, HelperHung) as gone:
                error, answers = str(gone), False
            VOLUME_METRIC_SECONDS.observe(time.monotonic() - began, volume.driver)
            if error:
                # A driver that always fails has the same text for each volume, in each period.
                if (volume.driver, error) not in self._driver_errors.values():
                    log.warning("cannot measure volume %s of pod %s: %s", name, uid, error)
                self._driver_errors[uid, name] = volume.driver, error
                self._driver_figures.pop((uid, name), None)
                if answers:
                    continue
                break
            self._driver_errors.pop((uid, name), None)
            self._driver_figures[uid, name] = outcome
            add(uid, name, outcome)
        for uid, name, _ in left:
            if (before := self._driver_figures.get((uid, name))) is not None:
                add(uid, name, before)

    def _is_driver_due(self, one: tuple[str, str, Volume]) -> bool:
        return time.monotonic() - self._driver_asked.get(one[:2], -math.inf) >= self._period_s


def _keep(uid: str, name: str, outcome: Outcome) -> None:
    """Adds figures to no answer."""
