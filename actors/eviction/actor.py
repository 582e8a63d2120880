"""The eviction actor: watches the node's resources, and under pressure reclaims, then evicts one pod at a time.

A condition holds for a transition period after it was last seen. A checkpoint, written at each change, keeps the names
of conditions that hold. After a restart they count as just seen. So a restart may extend a condition by one period, and
never admits pods to a node that was under pressure a moment ago.

The checkpoint also keeps each eviction under way, written before the request. After a kill the next incarnation waits
for that pod before it evicts another. It keeps the pods that did not end in time, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from actors._base import Actor, handles
from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.names import qos_cgroup
from actors._cgroup.quantities.allocatable import enforced
from actors._events.recorder import Recorder, pod_reference
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors._host.first_look import machine_of_agent
from actors._host.node.critical import is_critical
from actors._host.node.plans import CHANGED, Basis, LastPlan
from actors._host.system import boot_id
from actors._metrics import kubelet as metrics
from actors.eviction import local_storage, message, notification, planning, policy, relief, under_way
from actors.eviction.new_pods import NewPods, names_everyone, still_there
from actors.eviction.policy import ORDER, Observation
from actors.eviction.thresholds import (
    ALLOCATABLE,
    SIGNALS,
    BadThreshold,
    Condition,
    DiskLayout,
    Threshold,
    parse_thresholds,
    supposed_threshold,
    with_containerfs,
)
from actors.eviction.under_way import Saved, Stage, Victim
from proto.common.until import Until
from proto.node.container_gc import CollectGarbage
from proto.node.eviction import GetPressure, Plan, PlanEviction, Pressure, Signal
from proto.node.image_gc import DeleteUnusedImages
from proto.node.stats import GetNodeStats, GetPodUsages, PodUsage
from proto.pods.pod_workers import EvictPod, ListPodWorkers, PodWorkerStates, SetNodePressure
from proto.v1 import Pod
from proto.wire.errors import ActorDead, ActorError, AskTimeout, ProtocolError, Refused

log = logging.getLogger(__name__)

CHECKPOINT_VERSION = 1
STATS_S = 10.0
USAGES_S = 40.0
RECLAIM_S = 120.0
WORKERS_S = 10.0
DISK_S = 5.0
CLEANUP_POLL_S = 1.0
SPECS_AT_ONCE = 20
"""Pods in one answer. Larger answers would raise the memory of this process and of pod_workers for good."""


class Eviction(Actor):
    """State: the time each condition was last seen, the latest observations, and the evictions under way."""

    name = "eviction"
    asks = frozenset({"stats", "image_gc", "container_gc", "pod_workers"})

    async def rebuild(self) -> None:
        """Restore the conditions that held, and the evictions under way. The rest is measured. Raises BadThreshold."""
        limited = self.settings.cgroups_per_qos and "pods" in self.settings.enforce_node_allocatable
        self._configured = parse_thresholds(
            self.settings.eviction_hard,
            self.settings.eviction_soft,
            self.settings.eviction_soft_grace_s,
            self.settings.eviction_minimum_reclaim,
            pods_are_limited=limited,
        )
        self._thresholds = self._configured
        """With those of containerfs, which depend on the disks."""
        self.layout: DiskLayout = "one disk"
        self._pods_limit: int | None = None
        if any(one.signal == ALLOCATABLE for one in self._thresholds):
            args = self.settings.root_dir, self.settings.run_dir, self.bus.supervisor_pidfd
            machine = await self.blocking(DISK_S, machine_of_agent, *args)
            self._pods_limit = enforced(machine, self.settings)["memory"]
        self._progress = policy.Progress()
        path = f"{paths.checkpoints_dir(self.settings.root_dir)}/{self.name}.json"
        loss = "a restart would forget the node's conditions and evictions under way"
        # Not synced: both end with the node's boot.
        self._file = CheckpointFile(self, path, CHECKPOINT_VERSION, loss, deadline_s=DISK_S)
        self._boot = boot_id()
        now = time.monotonic()
        saved = self._load(now)
        known = saved.conditions if self._thresholds else ()
        self._observed: dict[Condition, float] = {condition: now for condition in ORDER if condition in known}
        self._conditions = policy.conditions(self._observed)
        self._victims = {victim.uid: victim for victim in saved.victims}
        self._overdue: dict[str, int] = dict(saved.overdue)
        """UID to grace period of evicted pods that did not end in time: the same request has no effect on them."""
        self._file.holds(msgspec.structs.replace(saved, boot_id=self._boot))
        self._seen: dict[str, Observation] = {}
        self._known: dict[str, Pod | None] = {}
        """UID to the pod when its ephemeral storage is limited, else to None."""
        self._known_by_end: set[str] = set()
        """UIDs of ending pods without a known limit. A static pod may come back with the UID of its orphan, which had
        no spec."""
        self._new_pods = NewPods(paths.pods_dir(self.settings.root_dir))
        self._events = Recorder(self.peer("events"))
        self._evicted = 0
        self._looking = self._noticed_meanwhile = False
        tree = hierarchy()
        self._pods_cgroup = qos_cgroup(self.settings.cgroup_driver, self.settings.cgroup_root, "Guaranteed")
        watched = notification.sources(tree, self._pods_cgroup) if self._memory_thresholds() else ()
        self._notices = notification.Notices(self.bus, watched, self._noticed)
        wanted = self.settings.kernel_memcg_notification and not tree.unified
        self._memory_cgroup = tree.path("memory", "/") if wanted else None
        self._plan_shown = LastPlan()
        self._last_error = ""

    def _load(self, now: float) -> Saved:
        try:
            return under_way.parse(self._file.load(), self._boot, now)
        except msgspec.ValidationError as error:
            log.warning("cannot use %s: %s; starting without it", self._file.path, error)
            return Saved()

    def on_ready(self) -> None:
        """Start the loop with a look at once, because a pod may be admitted at any time."""
        self._say_conditions(ORDER)
        if self._thresholds or self.settings.local_storage_capacity_isolation:
            self.every(Until(self.settings.eviction_monitoring_period_s), self._tick, "monitor")

    # Notices of the kernel

    def _memory_thresholds(self) -> list[Threshold]:
        return [one for one in self._configured if one.signal == "memory.available"]

    def _ask_for_notices(self) -> None:
        """Have the kernel tell when memory is short: see `notification`."""
        self._notices.watch_sources()
        seen, thresholds = self._seen.get("memory.available"), self._memory_thresholds()
        if self._memory_cgroup is None or seen is None or not thresholds:
            return
        try:
            least = max(one.quantity(seen.capacity) for one in thresholds)
            self._notices.watch_usage(self._memory_cgroup, seen.capacity, least)
        except OSError as error:
            log.warning("cannot ask for notices about memory: %s; memory is looked at periodically", error)
            self._memory_cgroup = None

    def _noticed(self, path: str, goes_on: bool) -> None:
        """Runs in the I/O thread."""
        self.post(self._look_at_once, path, goes_on, name="memory notice")

    def _look_at_once(self, path: str, goes_on: bool) -> None:
        if goes_on:
            self.after(notification.PAUSE_S, self._notices.resume, path)
        else:
            self._notices.drop(path)
        if self._looking:
            self._noticed_meanwhile = True  # after that look's figures, perhaps
        else:
            self.spawn(self._tick(0.0), "memory notice")

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Send the conditions to pod workers that start. They begin pods in directories that are there already."""
        if name == "pod_workers":
            self._new_pods.doubt()
            self._tell()

    def describe(self) -> dict[str, Any]:
        """Return the conditions, the number of evicted pods, UIDs of evicted pods that end, and watched files."""
        return {
            "conditions": list(self._conditions),
            "evicted": self._evicted,
            "waits_for": list(self._victims),
            "overdue": list(self._overdue),
            "disks": self.layout,
            "notices": self._notices.paths(),
            "last_error": self._last_error,
        }

    @handles(GetPressure)
    def get_pressure(self, _: GetPressure) -> Pressure:
        """Return the latest observations; no signals before the first look."""
        signals = (
            Signal(
                signal=threshold.signal,
                available=seen.available,
                capacity=seen.capacity,
                threshold=threshold.quantity(seen.capacity),
                met=policy.is_met(threshold, self._seen),
            )
            for threshold in self._thresholds
            if (seen := self._seen.get(threshold.signal)) is not None
        )
        return Pressure(conditions=self._conditions, signals=tuple(signals))

    def _tell(self) -> None:
        self.peer("pod_workers").tell(SetNodePressure(conditions=self._conditions))

    # The loop

    async def _tick(self, max_age_s: float = 1.0) -> None:
        """Look at the node, again after each eviction. One look runs at a time.

        `max_age_s`: 0 after a notice, which may be newer than any figures that are kept.
        """
        if self._looking:
            return
        self._looking = True
        try:
            if self._victims:  # of a former incarnation, or of a look that broke off
                await self._look(max_age_s)
                await self._wait_for_victims()
                max_age_s = 0.0
            while await self._synchronize(max_age_s):
                await self._wait_for_victims()
                max_age_s = 0.0  # another actor may have had the node measured before the pod's end
        except ActorError as error:
            self._last_error = str(error)
            log.warning("cannot measure node pressure: %s; retrying at the next period", error)
        else:
            self._last_error = ""
        finally:
            self._looking = False
            if self._noticed_meanwhile:
                self._noticed_meanwhile = False
                self.spawn(self._tick(0.0), "memory notice")

    async def _synchronize(self, max_age_s: float) -> list[str]:
        """Look once, reclaim or evict as needed, and return the UIDs of the evicted pods."""
        await self._look(max_age_s)
        evicted = await self._enforce_limits() if self.settings.local_storage_capacity_isolation else []
        if evicted or not self._progress.acted_on:
            return evicted
        resource = SIGNALS[self._progress.acted_on[0].signal].resource
        log.warning("attempting to reclaim %s", resource)
        self._events.node("Warning", "EvictionThresholdMet", f"Attempting to reclaim {resource}")
        evicted = await relief.relieve(self, self._progress)
        if not self._progress.acted_on:
            log.info("able to reduce resource pressure without evicting pods")
        return evicted

    async def _look(self, max_age_s: float) -> None:
        await self._observe(max_age_s)
        self._ask_for_notices()
        await self._set_conditions(self._progress.first_met)

    async def observe(self) -> policy.Progress:
        """Look at the node now. Raises ActorError."""
        await self._observe(max_age_s=0.0)
        return self._progress

    async def _observe(self, max_age_s: float) -> None:
        node = await self.peer("stats").ask(GetNodeStats(max_age_s=max_age_s), STATS_S)
        self.layout = policy.disk_layout(node)
        self._thresholds = with_containerfs(self._configured, self.layout)
        self._seen = policy.observations(node)
        if self._pods_limit is not None:
            used = fs.usage(self._pods_cgroup)
            taken = used.memory_working_set_bytes if used is not None else 0
            self._seen[ALLOCATABLE] = Observation(max(0, self._pods_limit - taken), self._pods_limit)
        self._progress = self._progress.observe(self._thresholds, self._seen, time.monotonic())

    async def _set_conditions(self, met: Iterable[Threshold]) -> None:
        period_s = self.settings.eviction_pressure_transition_period_s
        self._observed = policy.last_observed(self._observed, met, period_s, time.monotonic())
        before, self._conditions = self._conditions, policy.conditions(self._observed)
        if self._conditions != before:
            log.warning("node conditions are now: %s", ", ".join(self._conditions) or "none")
            self._tell()
            self._say_conditions(set(self._conditions).symmetric_difference(before))
        await self._save()

    def _to_save(self) -> Saved:
        victims, overdue = tuple(self._victims.values()), dict(self._overdue)
        return Saved(conditions=self._conditions, boot_id=self._boot, victims=victims, overdue=overdue)

    async def _save(self) -> None:
        await self._file.save_changed(self._to_save())

    def _say_conditions(self, which: Iterable[Condition]) -> None:
        """Record the kubelet's node event for each of these conditions. No other actor records them."""
        for condition in ORDER:
            if condition in which:
                reason = message.condition_reason(condition, holds=condition in self._conditions)
                self._events.node("Normal", reason, f"Node {self.settings.node_name} status is now: {reason}")

    async def reclaim(self, step: policy.Reclaim) -> bool:
        """Remove unused containers or images; return True when some were removed."""
        try:
            if step == "images":
                return bool((await self.peer("image_gc").ask(DeleteUnusedImages(), RECLAIM_S)).removed)
            found = await self.peer("container_gc").ask(CollectGarbage(all_dead=True), RECLAIM_S)
        except ActorError as error:
            log.warning("cannot reclaim unused %s: %s; going on without", step, error)
            return False
        return found.containers + found.sandboxes + found.directories > 0

    def amount_of(self, signal: str) -> int:
        """Return the amount of an observed signal at the last look."""
        return self._seen[signal].available

    async def pause(self) -> None:
        """Wait until the next look for the effect of a reclaim."""
        await self.sleep(CLEANUP_POLL_S)

    # Pods

    async def _enforce_limits(self) -> list[str]:
        """Evict every pod above its limits of ephemeral storage; return their UIDs.

        Measures only when an active pod has a limit.
        """
        limited = await self._limited_pods()
        if not limited:
            return []
        usages = await self._usages(with_disk=True)
        evicted = []
        for uid, (pod, ending) in limited.items():
            text = local_storage.violation(pod, usages[uid], self.layout) if uid in usages else ""
            if not text or is_critical(pod):
                continue
            grace_s, signal = local_storage.GRACE_PERIOD_S, local_storage.signal(text)
            if await self._evict(pod, text, grace_s, signal, ending=ending):
                evicted.append(uid)
                if not self._victims[uid].told:
                    break  # pod_workers does not answer now; the next look finds the others
        return evicted

    async def _limited_pods(self) -> dict[str, tuple[Pod, bool]]:
        """Return active pods with a limit, by UID, and whether they end. Asks only for the specs of new pods.

        While no pod has a limit, it asks only when there may be new pods.
        """
        if not self._new_pods.may_be() and not any(self._known.values()):
            return {}
        directories = await self._directories()
        began = time.monotonic()
        answer = await self._workers(with_pods=False)
        workers = answer.pods
        passed_over = self._passed_over(local_storage.GRACE_PERIOD_S, answer)
        self._known = still_there(self._known, answer, directories)
        again = {worker.uid for worker in workers if worker.stage == "sync"} & self._known_by_end
        new = [worker.uid for worker in workers if worker.uid not in self._known or worker.uid in again]
        for first in range(0, len(new), SPECS_AT_ONCE):
            some = await self._workers(with_pods=True, uids=tuple(new[first : first + SPECS_AT_ONCE]))
            known = {worker.uid: worker.pod for worker in some.pods if worker.pod is not None}
            self._known |= {uid: pod if local_storage.is_limited(pod) else None for uid, pod in known.items()}
        self._known_by_end = {one.uid for one in workers if one.stage != "sync" and self._known.get(one.uid) is None}
        all_known = all(worker.uid in self._known for worker in workers)
        self._new_pods.seen(began, everyone=all_known and names_everyone(answer, directories))
        active = (one for one in workers if planning.is_active(one) and one.uid not in passed_over)
        found = ((one, self._known.get(one.uid)) for one in active)
        return {one.uid: (pod, one.stage == "terminating") for one, pod in found if pod is not None}

    async def _directories(self) -> frozenset[str] | None:
        """Return the names of pods' directories, or None when the disk does not answer. Pods are watched from then."""
        try:
            return await self.blocking(DISK_S, self._new_pods.directories)
        except AskTimeout as error:
            log.warning("cannot list the directories of pods: %s; asking pod_workers at each look", error)
            return None

    async def evict(self, threshold: Threshold) -> list[str]:
        """Evict the first pod in rank that may be evicted; return its UID, if any."""
        signal, layout, observed = threshold.signal, self.layout, self._seen[threshold.signal]
        usages = await self._usages(with_disk=SIGNALS[signal].condition == "DiskPressure")
        workers = await self._workers(with_pods=True)
        longest_s = policy.grace_period_s(threshold, self.settings.eviction_max_pod_grace_period_s, None)
        passed_over = self._passed_over(longest_s, workers)
        found = planning.candidates(workers.pods, usages, signal, layout, passed_over)
        refused: dict[str, str] = {}
        for one in found:
            text, annotations = message.eviction_message(threshold, threshold.text, observed, one.pod, one.usage)
            own_s = one.pod.spec.termination_grace_period_seconds
            grace_s = policy.grace_period_s(threshold, self.settings.eviction_max_pod_grace_period_s, own_s)
            if await self._evict(one.pod, text, grace_s, signal, annotations, ending=one.ending):
                self._compare(planning.basis(found, signal, refused, one.uid))
                return [one.uid]
            refused[one.uid] = "not to be ended"
        log.error("cannot relieve node pressure: there is no pod to evict")
        return []

    def _compare(self, act: Basis) -> None:
        """Tell how an eviction differs from the plan that was shown."""
        if text := self._plan_shown.compare(act, time.monotonic()):
            log.warning("%s", text)
            self._events.node("Normal", CHANGED, text)

    @handles(PlanEviction)
    async def plan_eviction(self, request: PlanEviction) -> Plan:
        """Return the order of eviction for a supposed threshold or the first met one. Raises Refused."""
        try:
            supposed = supposed_threshold(request.signal, request.quantity) if request.signal else ()
        except BadThreshold as error:
            raise Refused("InvalidThreshold", str(error), retry=False) from error
        try:
            return await self._plan(supposed)
        except ActorError as error:
            raise Refused("Unavailable", str(error)) from error

    async def _plan(self, supposed: tuple[Threshold, ...]) -> Plan:
        node = await self.peer("stats").ask(GetNodeStats(max_age_s=0.0), STATS_S)
        layout = policy.disk_layout(node)
        seen = policy.observations(node) | {key: one for key, one in self._seen.items() if key == ALLOCATABLE}
        met = supposed or self._progress.observe(self._thresholds, seen, time.monotonic()).acted_on
        if not met:
            return Plan(victims=(), notes=("no eviction threshold is met",))
        signal = met[0].signal
        usages = await self._usages(with_disk=SIGNALS[signal].condition == "DiskPressure")
        workers = await self._workers(with_pods=True)
        longest_s = policy.grace_period_s(met[0], self.settings.eviction_max_pod_grace_period_s, None)
        passed_over = self._passed_over(longest_s, workers)
        found = planning.candidates(workers.pods, usages, signal, layout, passed_over)
        self._plan_shown.keep(planning.basis(found, signal, {}), time.monotonic())
        return Plan(victims=planning.victims(found, workers.pods, time.time()), notes=planning.notes(signal, layout))

    async def _workers(self, *, with_pods: bool, uids: tuple[str, ...] = ()) -> PodWorkerStates:
        return await self.peer("pod_workers").ask(ListPodWorkers(with_pods=with_pods, uids=uids), WORKERS_S)

    def _passed_over(self, grace_s: int, workers: PodWorkerStates) -> set[str]:
        """Return UIDs of pods whose end an eviction with this grace period cannot hasten. `workers`: all pods."""
        self._overdue = under_way.still_overdue(self._overdue, workers)
        return {uid for uid, before_s in self._overdue.items() if before_s <= grace_s}

    async def _usages(self, *, with_disk: bool) -> dict[str, PodUsage]:
        """Return UID to usage; empty when stats fails. Then priority decides."""
        request = GetPodUsages(max_age_s=0.0, with_disk=with_disk, with_containers=True)
        try:
            answer = await self.peer("stats").ask(request, USAGES_S)
        except (ActorError, ProtocolError) as error:  # the answer may be too large to send
            log.warning("cannot measure the usage of pods: %s; ranking by priority alone", error)
            return {}
        return {usage.pod_uid: usage for usage in answer.pods}

    async def _evict(
        self,
        pod: Pod,
        text: str,
        grace_period_s: int,
        signal: str,
        annotations: dict[str, str] | None = None,
        *,
        ending: bool,
    ) -> bool:
        """Ask for the pod's end; False when that is refused. Without an answer it may end, so it is waited for.

        `ending`: it ends already.
        """
        meta = pod.metadata
        request = EvictPod(pod_uid=meta.uid, reason=message.REASON, message=text, grace_period_s=grace_period_s)
        log.warning("evicting pod %s/%s: %s", meta.namespace, meta.name, text)
        victim = Victim(
            uid=meta.uid,
            until=time.monotonic() + under_way.kill_wait_s(grace_period_s),
            grace_period_s=grace_period_s,
            signal=signal,
            involved=pod_reference(pod),
            message=text,
            annotations=annotations or {},
            ending=ending,
        )
        self._victims[victim.uid] = victim
        await self._save()  # before the request: a kill after it must not cost another pod
        try:
            await self.peer("pod_workers").ask(request, WORKERS_S)
        except Refused as refusal:
            log.info("cannot evict pod %s/%s: %s", meta.namespace, meta.name, refusal.message)
            del self._victims[victim.uid]  # the next victim's write, or the next look's, forgets it on the disk
            return False
        except (ActorDead, AskTimeout) as error:
            log.warning("cannot tell whether pod %s/%s is evicted: %s; looking at it", meta.namespace, meta.name, error)
            return True
        self._report(victim)
        await self._save()
        return True

    def _report(self, victim: Victim) -> None:
        """Record and count an eviction that pod_workers has taken, once."""
        if victim.told:
            return
        self._events.object(victim.involved, "Warning", message.REASON, victim.message, annotations=victim.annotations)
        metrics.EVICTIONS.inc(victim.signal)
        self._evicted += 1
        self._victims[victim.uid] = msgspec.structs.replace(victim, told=True)

    async def _wait_for_victims(self) -> None:
        """Wait until the evicted pods are cleaned up, or until the end of their waits. Looks once at those past it."""
        before: dict[str, Stage] = {}
        while self._victims:
            await self.sleep(min(CLEANUP_POLL_S, self._left_s()))
            stages = await self._stages_of_victims()
            for victim in list(self._victims.values()):
                self._check(victim, stages, before)
            await self._save()
            before = stages

    def _left_s(self) -> float:
        return under_way.left_s(self._victims.values(), time.monotonic())

    async def _stages_of_victims(self) -> dict[str, Stage]:
        request = ListPodWorkers(uids=tuple(self._victims))
        try:
            workers = await self.peer("pod_workers").ask(request, max(CLEANUP_POLL_S, min(WORKERS_S, self._left_s())))
        except ActorError as error:
            log.info("cannot check whether evicted pods are gone: %s", error)
            return {}
        return under_way.stages(self._victims, workers)

    def _check(self, victim: Victim, stages: dict[str, Stage], before: dict[str, Stage]) -> None:
        """Record the eviction when the victim ends. Forget the victim when the wait for it is over."""
        stage = stages.get(victim.uid, "unknown")
        if under_way.has_begun(victim, stage):
            self._report(victim)
        victim = self._victims.pop(victim.uid)
        if under_way.is_over(victim, stages, before):
            return
        left = under_way.waited_for(victim, stage, time.monotonic())
        if left is not None:
            self._victims[victim.uid] = left
            return
        log.warning("cannot wait longer for the clean-up of evicted pod %s: timed out", victim.uid)
        if victim.told:
            self._overdue[victim.uid] = victim.grace_period_s


ACTOR = Eviction
