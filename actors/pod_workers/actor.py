"""The pod_workers actor: which pods are wanted, one PodWorker for each, and the traffic between them and the peers.

The kubelet's syncLoop, podManager and the outer part of podWorkers. Nothing here waits for a pod.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from actors._base import handles
from actors._base.actor import ActorContext
from actors._cgroup.fs import pod_cgroup_exists
from actors._cri.errors import CriError
from actors._events.recorder import Recorder
from actors._host import selinux
from actors._host.files.own_pods import OwnPods, mark_pod
from actors._host.node.critical import is_static
from actors._host.node.shutdown import ended_by_shutdown
from actors.pod_workers.admission import RuntimeFeatures, Share
from actors.pod_workers.admission.admission_queue import Effects, Entrance
from actors.pod_workers.api_pods.api_admission_gate import Cluster
from actors.pod_workers.assembly import make_node
from actors.pod_workers.checkpoint import Memory
from actors.pod_workers.model.desired import Desired, full_name
from actors.pod_workers.model.metrics import CountedWorkers
from actors.pod_workers.model.orphans import ForeignPods, orphan_pod, runs_under
from actors.pod_workers.model.termination_request import Ending
from actors.pod_workers.model.view import PodView
from actors.pod_workers.resources.allocation_manager import Grants
from actors.pod_workers.resources.node_cgroups import NodeCgroups
from actors.pod_workers.rows import described, not_begun, rows
from actors.pod_workers.shared.host_info import find
from actors.pod_workers.steps.runtime_view import list_pod
from actors.pod_workers.worker import PodWorker, Seed
from proto.pods.pod_workers import (
    EvictPod,
    ListPodWorkers,
    ObjectsChanged,
    PodChanged,
    PodUpdate,
    PodWorkerStates,
    ProbeResult,
    ProbeResults,
    SetNodePressure,
    SetNodeShutdown,
    VolumesMounted,
)
from proto.pods.probe import GetResults
from proto.pods.status import ListPods
from proto.v1 import Pod, PodStatus
from proto.wire.errors import ActorError, Refused
from proto.wire.message import Done

log = logging.getLogger(__name__)

FED = ("status", "probe", "pleg", "objects")
SEED_DEADLINE_S = 0.05
"""How long a start waits for what status and probe remember; one that is being restarted sends it once it is back."""
FACTS_S = 30.0
RUNTIME_RETRY_S = 1.0
WORKER_RESTART_S = 1.0
"""Before the worker of a pod is replaced that failed by an error of ours: it may well fail again."""


class PodWorkers(CountedWorkers):
    """See the module."""

    name = "pod_workers"
    asks = frozenset({"status", "probe", "volume", "image_pull", "objects"})

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self.desired = Desired(self.settings.pod_sources)
        self.workers: dict[str, PodWorker] = {}
        self._waiting: dict[str, list[str]] = defaultdict(list)
        """Full name of a pod to UIDs that wait until the present one of that name is gone."""
        self._views: dict[str, PodView] = {}
        """What the runtime showed at start, or when a worker ended that left something, until a worker takes it."""
        self._foreign = ForeignPods(OwnPods(self.settings.root_dir, take_over=self.settings.take_over))
        self._again: set[str] = set()
        self._runtime_seen = False
        self._statuses: dict[str, PodStatus] = {}
        self._results: dict[str, list[ProbeResult]] = defaultdict(list)
        self.memory = Memory(self)
        self._complete = False

    # Start

    async def rebuild(self) -> None:
        """The runtime's pods, what status and probe remember, and the checkpoint."""
        self.grants = Grants(self, Recorder(self.peer("events")))
        facts = await self.blocking(FACTS_S, lambda: find(self.settings))
        told = self._check_complete, self.memory.save_soon, self._over
        self.node = make_node(self, facts, self.grants, self.desired.restored, *told)
        self.cgroups = NodeCgroups(self, self.node.events, self._shares)
        self.cgroups.begin(facts.machine, facts.info.allocatable["memory"])
        events, changed = self.node.events, self.cgroups.pods_changed
        self.cluster = Cluster(self)
        judging = self.grants.current, self.cluster.may_judge, self.cluster.look_again
        effects = Effects(self._place, self._end, self.memory.save, self.after, events, changed, *judging)
        self.entrance = Entrance(self.desired, self.cluster.recover(facts.info), effects)
        self.memory.recall()
        status = self.peer("status").ask(ListPods(), SEED_DEADLINE_S)
        results = self.peer("probe").ask(GetResults(), SEED_DEADLINE_S)
        await self._see_runtime()
        try:
            pods = [pod for pod in (await status).pods if pod.status is not None and not ended_by_shutdown(pod)]
            self._statuses = {pod.metadata.uid: pod.status for pod in pods}
        except ActorError as error:
            log.debug("status gives no seed: %s", error)
        try:
            self._take_results((await results).results)
            self.node.probes_known = True
        except ActorError as error:
            log.debug("probe gives no seed: %s", error)

    async def _see_runtime(self) -> None:
        """List what runs, once; pods wait until that has been possible."""
        try:
            sandboxes, containers = self.node.cri.list_pod_sandbox(), self.node.cri.list_containers()
            status = self.node.cri.status()
            self._views = PodView.by_pod(await sandboxes, await containers)
            features = RuntimeFeatures.from_status(await status)
            self.entrance.node = replace(self.entrance.node, features=features)
            self.node.userns.handlers = features.user_namespaces
        except CriError as error:
            log.warning("the container runtime does not answer, pods wait for it: %s", error)
            self.after(RUNTIME_RETRY_S, lambda: self.spawn(self._see_runtime_again(), "see_runtime"))
            return
        self._runtime_seen = True

    async def _see_runtime_again(self) -> None:
        await self._see_runtime()
        if self._runtime_seen:
            log.info("the container runtime answers")
            self._reconcile_all()

    def on_ready(self) -> None:
        """Look for what else there is to know of this node."""
        if problem := selinux.warning(selinux.enforce()):
            log.warning("%s", problem)
        self.cluster.begin()

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002
        """Feed status, probe, pleg and objects anew: with all there is, or with what is known so far."""
        if name in FED:
            self.node.published.resend(name, full=self._complete)
        if name == "volume":
            for worker in self.workers.values():
                if worker.pod.spec.volumes and worker.stage == "sync":
                    worker.volumes_changed()  # it has to know which content the pods' volumes should have

    def is_complete(self) -> bool:
        """Every source and the runtime have said what there is."""
        return self._runtime_seen and self.desired.ready()

    def _check_complete(self) -> None:
        """Once every wanted pod is published, peers fed from here get all: what they were told before may be gone."""
        if self._complete or not self.is_complete():
            return
        if all(uid in self.node.published.pods for uid in self.workers):
            self._complete = True
            for name in FED:
                self.node.published.resend(name, full=True)

    # Wanted pods

    @handles(PodUpdate)
    def on_pod_update(self, update: PodUpdate) -> None:
        """From a source: add, change, ask to end (by a deletionTimestamp), remove."""
        change = self.desired.apply(update)
        self.cluster.changed(change.updated)
        for uid in change.removed:
            self.cluster.over(uid)
        if not self._runtime_seen:
            return
        for uid in change.removed:
            self._remove(uid)
        if update.op == "SET":
            self._reconcile_all()
            return
        for uid in change.updated:
            if uid in self.workers:
                self.grants.update(uid)
        self._enter(change.added)
        self.grants.retry()

    def _reconcile_all(self) -> None:
        """Level-triggered: what is wanted gets a worker, what only runs gets one that ends it."""
        for uid in list(self.workers):
            if uid not in self.desired.pods:
                self._remove(uid)
        for uid in list(self.desired.pods):
            if uid in self.workers:
                self.grants.update(uid)
        self._end_orphans()  # first: a static pod waits for one of its name, too
        self._enter(uid for uid in self.desired.pods if uid not in self.workers)
        self.grants.retry()
        self._check_complete()
        self.cgroups.pods_changed()

    def _forget_gone(self) -> None:
        """What is remembered of pods that went while we were away: one that comes back with its UID starts anew."""
        wanted = self.desired.pods.keys()
        self._statuses = {uid: status for uid, status in self._statuses.items() if uid in wanted}
        self.entrance.keep_rejected(wanted)
        self.grants.keep(set(wanted))

    def _shares(self) -> list[Share] | None:
        return self.entrance.shares() if self.is_complete() else None

    def _enter(self, uids: Iterable[str]) -> None:
        self.entrance.enter([uid for uid in uids if not self._is_refused(uid)], self._is_beyond_admission)

    def _is_refused(self, uid: str) -> bool:
        """Return True for a pod that must not begin. Asked before its admission, which would be a mark."""
        pod = self.desired.pods[uid]
        return uid not in self.workers and self._foreign.refuses(pod, lambda: self._has_something(pod))

    def _is_beyond_admission(self, uid: str) -> bool:
        """It runs, or is to end, or is over: nothing of it is begun anew."""
        pod, view = self.desired.pods[uid], self._views.get(uid)
        if pod.metadata.deletion_timestamp is not None or (view is not None and view.sandboxes):
            return uid not in self._again
        return (self._statuses.get(uid) or pod.status).phase in ("Succeeded", "Failed")

    def _place(self, uid: str) -> None:
        """Admission has its answer: give the pod a worker."""
        pod = self.grants.current(self.desired.pods[uid])
        name = full_name(pod)
        goes_on = uid in self._views and self._views[uid].has_processes  # and is taken up, whatever is in its way
        unclaimed, workers = {} if self.desired.ready() else self._views, self.workers.values()
        if is_static(pod) and not goes_on and runs_under(name, uid, [one.pod for one in workers], unclaimed):
            if uid in self.workers:
                self.workers[uid].come_again()
            if uid not in self._waiting[name]:
                self._waiting[name].append(uid)  # two static pods of one full name never run at one time
            return
        self._again.discard(uid)
        view = None if self._foreign.claim(uid) else self._views.pop(uid, PodView())
        if view is None or view.sandboxes:
            self._mark(uid)
        self._start_worker(pod, view, self.entrance.ending(uid))

    def _has_something(self, pod: Pod) -> bool:
        uid = pod.metadata.uid
        return uid in self._foreign or uid in self._views or pod_cgroup_exists(pod, self.settings)

    def _mark(self, uid: str) -> None:
        """Mark a wanted pod that runs already: its mark may be lost with the root directory."""
        try:
            mark_pod(self.settings.root_dir, uid)
        except OSError as error:
            log.warning("cannot make the directory of pod %s: %s", uid, error)

    def _start_worker(self, pod: Pod, view: PodView | None, ending: Ending | None) -> None:
        uid = pod.metadata.uid
        seed = Seed(
            view=view,
            status=self._statuses.pop(uid, None),
            results=tuple(self._results.pop(uid, ())),
            desired=self.desired.pods.get(uid),
            pending=self.grants.allocator.pending.get(uid),
            ending=ending,
        )
        if ending is None:
            self.grants.admitted(pod)
            self.cluster.accepted(uid)
        PodWorker.start(self.node, pod, seed, self._worker_created, lambda *end: self.post(self._worker_finished, *end))

    def _worker_created(self, worker: PodWorker) -> None:
        self.workers[worker.pod.metadata.uid] = worker

    def _end(self, uid: str, ending: Ending) -> None:
        self.workers[uid].end(ending) if uid in self.workers else self._over(uid)

    def _over(self, uid: str) -> None:
        """Nothing of the pod runs any more: what it had is free."""
        self.entrance.over(uid)
        self.cluster.over(uid)
        self.grants.retry()

    def _remove(self, uid: str) -> None:
        self._statuses.pop(uid, None)
        for waiting in self._waiting.values():
            if uid in waiting:
                waiting.remove(uid)
        if self.entrance.left(uid):
            self.memory.save_soon()
        worker = self.workers.get(uid)
        if worker is not None:
            worker.end(Ending(deleted=True))

    def _end_orphans(self) -> None:
        if self.desired.ready():
            unwanted = [uid for uid in self._views if uid not in self.workers and uid not in self.desired.pods]
            views = {uid: self._views.pop(uid) for uid in unwanted}
            for uid in self._foreign.ours_of(views):
                self._end_orphan(uid, views[uid])
            self._forget_gone()

    def _end_orphan(self, uid: str, view: PodView) -> None:
        pod = orphan_pod(uid, view)
        log.info("pod %s (%s) runs but no source wants it: ending it", full_name(pod), uid)
        self._start_worker(pod, view, Ending(deleted=True))

    def _worker_finished(self, uid: str, failed: bool) -> None:
        worker = self.workers.pop(uid, None)
        if worker is None:
            return
        if failed:
            self.after(WORKER_RESTART_S, self._replace_worker, worker)
            return
        self.entrance.over(uid)
        self.grants.finished(uid)
        waiting = self._waiting.pop(full_name(worker.pod), [])
        self._check_complete()
        if (left := worker.runtime.pod).sandboxes:
            self._views[uid] = left
            self._again.add(uid)  # admitted anew, though its next life counts on from this one
        # Wanted again while it was ending, or next of its name.
        self._enter(one for one in dict.fromkeys((uid, *waiting)) if one in self.desired.pods)
        self._end_orphans()

    def _replace_worker(self, failed: PodWorker) -> None:
        uid = failed.pod.metadata.uid
        if uid not in self.workers:
            pod = self.grants.current(self.desired.pods.get(uid, failed.pod))
            self._start_worker(pod, None, failed.ending)
            if uid not in self.desired.pods:
                self._remove(uid)

    # From the peers

    @handles(VolumesMounted)
    def on_volumes_mounted(self, message: VolumesMounted) -> None:
        """From volume: what it had refused is mounted by now."""
        worker = self.workers.get(message.pod_uid)
        if worker is not None:
            worker.volumes_changed()

    @handles(PodChanged)
    def on_pod_changed(self, change: PodChanged) -> None:
        """From pleg. Of a pod without a worker: what a call that was given up has made after all."""
        worker = self.workers.get(change.pod_uid)
        if worker is not None:
            worker.runtime_changed(change.exited)
        elif self._runtime_seen and change.pod_uid not in self._foreign:
            self.spawn(self._look_for(change.pod_uid), "look_for")

    async def _look_for(self, uid: str) -> None:
        try:
            view = await list_pod(self.node.cri, uid)
        except CriError as error:
            log.debug("cannot look for pod %s: %s, trying again", uid, error)
            self.after(RUNTIME_RETRY_S, lambda: self.spawn(self._look_for(uid), "look_for"))
            return
        if uid in self.workers:
            self.workers[uid].runtime_changed(())
        elif view.sandboxes or view.containers:
            self._views[uid] = view
            self._end_orphans()

    @handles(ObjectsChanged)
    def on_objects_changed(self, change: ObjectsChanged) -> None:
        """From objects: what waits for one of these is tried now; to the others it means nothing."""
        self.cluster.objects_changed(change)
        for uid in self.node.published.users(change):
            if uid in self.workers:
                self.workers[uid].wake()

    @handles(ProbeResults)
    def on_probe_results(self, message: ProbeResults) -> None:
        """From probe."""
        self._take_results(message.results)
        if message.full and not self.node.probes_known:
            self.node.probes_known = True
            for worker in self.workers.values():
                worker.wake()

    def _take_results(self, results: tuple[ProbeResult, ...]) -> None:
        by_pod: dict[str, list[ProbeResult]] = defaultdict(list)
        for result in results:
            by_pod[result.pod_uid].append(result)
        for uid, own in by_pod.items():
            worker = self.workers.get(uid)
            if worker is not None:
                worker.probed(tuple(own))
            elif not self._complete:
                self._results[uid].extend(own)

    @handles(EvictPod)
    def on_evict(self, request: EvictPod) -> Done:
        """From eviction."""
        worker = self.workers.get(request.pod_uid)
        if worker is None:
            raise Refused("NotFound", f"no pod with UID {request.pod_uid}", retry=False)
        worker.end(Ending(grace_period_s=request.grace_period_s, reason=request.reason, message=request.message))
        if not request.with_machine:
            self.entrance.evicted(request.pod_uid, request.reason, request.message)
            self.memory.save_soon()
        return Done()

    @handles(SetNodeShutdown)
    def on_node_shutdown(self, message: SetNodeShutdown) -> None:
        """From node."""
        self.entrance.shutting_down = message.shutting_down

    @handles(SetNodePressure)
    def on_pressure(self, message: SetNodePressure) -> None:
        """From eviction."""
        self.entrance.pressure = message.conditions

    @handles(ListPodWorkers)
    def on_list(self, request: ListPodWorkers) -> PodWorkerStates:
        """For container_gc, eviction and consoles."""
        pods = rows(self.workers, self.node.published.pods, request.uids, with_pods=request.with_pods)
        return PodWorkerStates(pods=pods, sources_ready=self.is_complete())

    def describe(self) -> dict[str, Any]:
        """Workers by stage and what each is doing."""
        judged = self.cluster.may_judge
        return {
            "sources_ready": self.desired.ready(),
            "runtime_seen": self._runtime_seen,
            "pressure": list(self.entrance.pressure),
            "not_begun": not_begun(self.desired, self.workers, self._waiting, judged, self._runtime_seen)
            | self._foreign.refused,
            "pods": described(self.workers.values()),
            "left_alone": self._foreign.described(),
        }


ACTOR = PodWorkers
