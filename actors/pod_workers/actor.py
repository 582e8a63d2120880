"""The pod_workers actor: keeps the desired pods, runs one PodWorker per pod, and talks to the peers.

It does the work of the kubelet's syncLoop, podManager and the outer part of podWorkers. A new pod passes, in this
order, the desired pods, the admission queue, the allocation manager, and then a worker. No handler waits for a pod.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from actors._base import handles
from actors._base.actor import Actor, ActorContext
from actors._cgroup.fs import pod_cgroup_exists
from actors._cri.errors import CriError
from actors._events.recorder import Recorder
from actors._host import selinux
from actors._host.files.own_pods import OwnPods, is_marked, mark_pod
from actors._host.node.critical import is_static
from actors._host.node.shutdown import ended_by_shutdown
from actors._host.system import agent_id
from actors.pod_workers.address_search import AddressSearch
from actors.pod_workers.admission import RuntimeFeatures
from actors.pod_workers.admission.admission_queue import AdmissionCallbacks, AdmissionQueue
from actors.pod_workers.api_pods.api_admission_gate import ApiAdmissionGate
from actors.pod_workers.assembly import (
    HOST_INFO_S,
    HostInfo,
    compare_driver,
    find_host_ips,
    make_context,
    read_host_info,
)
from actors.pod_workers.checkpoint import Checkpoint
from actors.pod_workers.cri_config.resolv_conf import ResolvConfCheck
from actors.pod_workers.decide.termination import end_grace_s
from actors.pod_workers.model.desired import API, Desired, full_name
from actors.pod_workers.model.end_record import remaining_grace_s
from actors.pod_workers.model.orphans import ForeignPods, orphan_pod, replaced, runs_under
from actors.pod_workers.model.termination_request import TERMINAL_PHASES, TerminationRequest
from actors.pod_workers.model.view import PodView
from actors.pod_workers.resources.allocation_manager import AllocationManager
from actors.pod_workers.resources.assignments import Assignments
from actors.pod_workers.resources.node_cgroups import NodeCgroups
from actors.pod_workers.steps.runtime_view import list_pod
from actors.pod_workers.stuck_pods import StuckPods
from actors.pod_workers.timeline import StartTimelines
from actors.pod_workers.worker import InitialState, PodWorker
from actors.pod_workers.worker_states import NotBegun, described, not_begun, set_gauges, states
from proto.agent.supervisor import CgroupDriver
from proto.node.image_pull import KeepPulls
from proto.node.runtime import EMBEDDED
from proto.pods.pod_workers import (
    EvictPod,
    GetTimelines,
    ListPodWorkers,
    ObjectsChanged,
    PodChanged,
    PodUpdate,
    PodWorkerStates,
    ProbeResult,
    ProbeResults,
    ResourcesState,
    SetHostIPs,
    SetNodePressure,
    SetNodeShutdown,
    SetResourceHealth,
    StatusWritten,
    Timelines,
    VolumesMounted,
)
from proto.pods.probe import GetResults
from proto.pods.status import ListPods, RemovePod
from proto.v1 import Pod, PodStatus
from proto.wire.errors import ActorDead, ActorError, Refused
from proto.wire.message import Done

log = logging.getLogger(__name__)

FED = ("status", "probe", "pleg", "objects")
"""Peers that are sent all pods again when they restart."""
STATUSES_S = 5.0
"""A start waits this long for the published statuses. Without them, containers that the runtime has lost would begin
anew with restart count 0. The actor status answers once it has read its checkpoint."""
STATUSES_AGAIN_S = 0.05
"""Before status is asked again after its end."""
RESULTS_S = 0.05
"""A start waits this long for probe results. probe sends later ones itself, and no readiness is published before."""
RUNTIME_RETRY_S = 1.0
WORKER_RESTART_S = 1.0
"""Before a worker that failed by a bug is replaced: the next one may fail as well."""


class PodWorkers(Actor):
    """See the module. Pods are keyed by UID."""

    name = "pod_workers"
    asks = frozenset({"status", "probe", "pleg", "volume", "image_pull", "objects", "resources"})

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self.desired = Desired(self.settings.pod_sources)
        self.workers: dict[str, PodWorker] = {}
        self._waiting: dict[str, list[str]] = defaultdict(list)
        """Full name of a pod to UIDs that wait until the present pod of that name is gone."""
        self._views: dict[str, PodView] = {}
        """Pods in the runtime that no worker has taken: listed at start, or left when a worker ended."""
        self._failed: set[str] = set()
        """UIDs of pods whose worker failed and has no successor yet: the runtime's state of them is not known."""
        self._foreign = ForeignPods(OwnPods(self.settings.root_dir, take_over=self.settings.take_over))
        self._admit_again: set[str] = set()
        """Pods that have sandboxes left from an ended worker: admission decides on them as on new ones."""
        self._runtime_seen = False
        self._for_runtime = "it has not answered yet"
        """Why pods wait for the container runtime; empty once it is seen."""
        self._statuses: dict[str, PodStatus] = {}
        self._results: dict[str, list[ProbeResult]] = defaultdict(list)
        self._complete = False
        self._timelines = StartTimelines()
        self._not_begun = NotBegun(self, self._reasons_not_begun)

    # Start

    async def rebuild(self) -> None:
        """Read the machine and the checkpoint, list the runtime's pods, and ask status and probe for their facts."""
        ips = self.blocking(HOST_INFO_S, find_host_ips, self.settings)  # beside the rest: the resolver may be slow
        host = await self.blocking(HOST_INFO_S, read_host_info, self.settings, self.bus.supervisor_pidfd)
        # Recorded, so that a replay knows whether the agent had started anew.
        agent = await self.blocking(HOST_INFO_S, agent_id, self.bus.supervisor_pidfd)
        self._assemble(host, agent)
        statuses = self.spawn(self._published_statuses(), "statuses")
        results = self.peer("probe").ask(GetResults(), RESULTS_S)
        await self._see_runtime()
        self._statuses = await statuses
        self.context.host_ips = await ips
        try:
            self._take_results((await results).results)
            self.context.probes_known = True
        except ActorError as error:
            log.debug("cannot read the probe results: %s", error)

    def on_shutdown(self) -> None:
        """Let the runtime start the containers that it was asked for."""
        self.context.cri.wait_for_starts()

    async def _published_statuses(self) -> dict[str, PodStatus]:
        """By UID; empty when status does not answer. A status that restarts meanwhile is asked again."""
        deadline = time.monotonic() + STATUSES_S
        while (left_s := deadline - time.monotonic()) > 0:
            self._remove_old_ends()
            try:
                pods = (await self.peer("status").ask(ListPods(), left_s)).pods
            except ActorDead:
                await self.sleep(STATUSES_AGAIN_S)
            except ActorError as error:
                log.warning("cannot read published statuses: %s; lost containers have restart count 0", error)
                break
            else:
                return {one.metadata.uid: one.status for one in pods if one.status and not ended_by_shutdown(one)}
        return {}

    def _assemble(self, host: HostInfo, agent: str) -> None:
        """Build the parts in the order in which a new pod passes them."""
        events = Recorder(self.peer("events"))
        self.checkpoint = Checkpoint(self, agent)
        callbacks = AdmissionCallbacks(
            start_worker=self._give_worker,
            end_pod=self._end_pod,
            save_checkpoint=self.checkpoint.save,
            after=self.after,
            events=events,
            shares_changed=lambda: self.cgroups.pods_changed(),  # noqa: PLW0108 - built below
            allocated=lambda pod: self.allocations.current(pod),  # noqa: PLW0108 - built below
            actuated=lambda uid: self.allocations.still_held(uid),  # noqa: PLW0108 - built below
            may_decide=lambda uid: self.api_gate.may_decide(uid),  # noqa: PLW0108 - built below
            refresh_node=lambda uid: self.api_gate.refresh_node(uid),  # noqa: PLW0108 - built below
            assign=lambda uid, trial: self.assignments.assign(uid, trial=trial),
            release=lambda uid: self.assignments.pod_gone(uid),  # noqa: PLW0108 - built below
            retry_resizes=lambda: self.allocations.retry_pending_resizes("pods_removed"),
        )
        saved = self.checkpoint.saved
        self.admission_queue = AdmissionQueue(
            self.desired, host.node, callbacks, saved.rejected, saved.rejected_before,
            saved.rejected_by_earlier_start, saved.served_by_other_agent,
        )  # fmt: skip
        self.api_gate = ApiAdmissionGate(
            self, self.desired, self.admission_queue, self._go_on_alone,
            lambda uid: uid in self.workers or self._has_processes(uid),
            lambda: self.allocations.retry_pending_resizes("periodic_retry"),
        )  # fmt: skip
        self.api_gate.recover(is_new_agent=not saved.is_settled, other_served=saved.awaits_server, ran=saved.ran)
        self.allocations = AllocationManager(
            self,
            events,
            desired=self.desired,
            admission_queue=self.admission_queue,
            workers=self.workers,
            is_complete=self.is_complete,
        )
        self.assignments = Assignments(self, events, self.desired, self.admission_queue, self.allocations)
        self.context = make_context(
            self,
            host,
            self.allocations,
            self.checkpoint,
            self.assignments.managed,
            restored=self.desired.restored,
            on_new_pod=self._check_complete,
            on_terminated=self._pod_terminated,
        )
        self.cgroups = NodeCgroups(self, events, self.admission_queue.shares, self.is_complete)
        endpoint = self.settings.container_runtime_endpoint
        self._stuck = StuckPods(self, events, self._known_pods, "" if endpoint == EMBEDDED else endpoint)
        self.cgroups.begin(host.machine, host.node.allocatable["memory"])

    async def _see_runtime(self) -> None:
        """List the runtime's pods, once; no pod starts before that has succeeded, and the cgroup driver is known."""
        try:
            sandboxes, containers = self.context.cri.list_pod_sandbox(), self.context.cri.list_containers()
            status, driver = self.context.cri.status(), self.context.cri.cgroup_driver()
            self._views = PodView.by_pod(await sandboxes, await containers)
            answer = await status
            self.context.network.seen(answer)
            features = RuntimeFeatures.from_status(answer)
            self.admission_queue.node = replace(self.admission_queue.node, features=features)
            self.context.userns.handlers = features.user_namespaces
            waits = await compare_driver(driver, self.settings.cgroup_driver, self._driver_told)
        except CriError as error:
            waits = f"it does not answer: {error}"
        self._for_runtime = waits
        if waits:
            log.warning("pods wait for the container runtime: %s", waits)
            self.after(RUNTIME_RETRY_S, lambda: self.spawn(self._see_runtime_again(), "see_runtime"))
            return
        self._runtime_seen = True

    def _driver_told(self, name: str) -> None:
        self.peer("supervisor").tell(CgroupDriver(name=name))

    async def _see_runtime_again(self) -> None:
        await self._see_runtime()
        if self._runtime_seen:
            log.info("the container runtime answers")
            self._reconcile_all()

    def on_ready(self) -> None:
        """Warn of SELinux problems, and start reading our own Node."""
        if problem := selinux.warning(selinux.enforce()):
            log.warning("%s", problem)
        self.api_gate.begin()
        self._stuck.begin()
        ResolvConfCheck(self, self.context.events).begin()
        AddressSearch(self, self.context, self._use_host_ips).begin()

    def _use_host_ips(self, ips: tuple[str, ...]) -> None:
        self.context.host_ips = ips
        for worker in self.workers.values():
            worker.wake()

    def measure(self) -> None:
        """Set the gauges of pods."""
        pending = self.allocations.allocator.pending
        set_gauges(self.workers, self.desired, pending)

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002
        """Send status, probe, pleg and objects all pods again, or those known so far."""
        if name == "status":
            self._remove_old_ends()
        if name in FED:
            self.context.published.resend(name, full=self._complete)
        if name == "resources":
            self.assignments.resend(full=self._complete)
        if name == "image_pull" and self._complete:
            self._keep_pulls()
        if name == "volume":
            for worker in self.workers.values():
                if worker.pod.spec.volumes and worker.stage == "sync":
                    worker.volumes_changed()  # a restarted volume actor has to learn the volumes' content

    def _remove_old_ends(self) -> None:
        """A pod's end may be in the checkpoint of status after the pod has begun anew. Other statuses stay."""
        for uid, (reason, message) in self.admission_queue.old_ends().items():
            self.peer("status").tell(RemovePod(pod_uid=uid, reason=reason, message=message))

    def is_complete(self) -> bool:
        """Return True when every source and the runtime have reported their pods."""
        return self._runtime_seen and self.desired.ready()

    def _check_complete(self) -> None:
        """Once every wanted pod is published, send the peers all of them, so that they drop pods that are gone."""
        if self._complete or not self.is_complete():
            return
        if all(uid in self.context.published.pods for uid in self.workers):
            self._complete = True
            for name in FED:
                self.context.published.resend(name, full=True)
            self.assignments.resend(full=True)
            self._keep_pulls()
            self.checkpoint.settled()

    def _keep_pulls(self) -> None:
        """Withdraw pulls that an earlier process has asked for, of pods that are gone since."""
        ending = {uid for uid, worker in self.workers.items() if worker.stage != "sync"}
        wanted = (self.desired.pods.keys() | self.workers.keys()) - ending
        self.context.images.tell(KeepPulls(pod_uids=tuple(wanted)))

    # Wanted pods

    @handles(PodUpdate)
    def on_pod_update(self, update: PodUpdate) -> None:
        """From a source: pods to add, change, end (by a deletionTimestamp) or remove."""
        change = self.desired.apply(update)
        self._not_begun.changed()
        for uid in change.contested:
            log.error(
                "a pod of source %s has the UID %s of pod %s of source %s, and waits until that is removed; change its "
                "metadata.uid", update.source, uid, full_name(self.desired.pods[uid]), self.desired.source_of[uid],
            )  # fmt: skip
        self.api_gate.pods_updated(change.updated)
        self.assignments.pods_updated(change.updated)
        self.assignments.listed.changed((*change.added, *change.removed))
        for uid in change.removed:
            self.api_gate.pod_gone(uid)
        if not self._runtime_seen:
            return
        for uid in change.removed:
            self._remove(uid)
        if update.op == "SET":
            self._reconcile_all()
            return
        for uid in change.updated:
            if uid in self.workers:
                self.allocations.update(uid)
        self._enter(change.added)
        self.allocations.retry_pending_resizes(
            "pods_added" if change.added else "pod_updated" if change.updated else "pods_removed"
        )

    def _reconcile_all(self) -> None:
        """Give every wanted pod a worker, and every unwanted one a worker that ends it."""
        for uid in list(self.workers):
            if uid not in self.desired.pods:
                self._remove(uid)
        for uid in list(self.desired.pods):
            if uid in self.workers:
                self.allocations.update(uid)
        self._end_orphans()  # first: a static pod waits for an orphan of its full name
        if self.desired.ready():
            self._forget_gone()
        if API in self.desired.seen:
            self.checkpoint.server_answered()
        self._enter(uid for uid in self.desired.pods if uid not in self.workers)
        self.allocations.retry_pending_resizes("pods_added")
        self.assignments.listed.reconciled()
        self._check_complete()
        self.cgroups.pods_changed()

    def _forget_gone(self) -> None:
        """Forget pods that were removed while this actor was down: the same UID later is a new pod."""
        wanted = self.desired.pods.keys()
        self._statuses = {uid: status for uid, status in self._statuses.items() if uid in wanted}
        self.admission_queue.keep_rejected(wanted)
        self.allocations.keep(set(wanted))
        self.context.ends.keep(wanted | self.workers.keys())

    def _enter(self, uids: Iterable[str]) -> None:
        wanted = list(uids)
        self.admission_queue.count(uid for uid in wanted if self._has_processes(uid) and self._awaits_server(uid))
        accepted = [uid for uid in wanted if not self._awaits_server(uid) and not self._is_refused(uid)]
        if not self.admission_queue.rejected_before.isdisjoint(accepted):
            self.checkpoint.save_soon()  # else the next process would decide on them again
        for uid in self.admission_queue.decide_again(accepted):
            self._begin_anew(uid)
        self.admission_queue.add(accepted, self._is_beyond_admission, self._has_ended)

    def _awaits_server(self, uid: str) -> bool:
        return self.api_gate.awaits_server(uid, runs=self._has_processes(uid))

    def _go_on_alone(self) -> None:
        self.checkpoint.settled()
        if self._runtime_seen:
            self._reconcile_all()

    def _is_refused(self, uid: str) -> bool:
        """Return True for a pod that must not begin. Asked before admission, which would mark the pod as ours."""
        pod = self.desired.pods[uid]
        return uid not in self.workers and self._foreign.refuses(pod, lambda: self._has_something(pod))

    def _is_beyond_admission(self, uid: str) -> bool:
        """Return True for a pod that runs, ends or has ended: admission does not decide on it."""
        pod, view = self.desired.pods[uid], self._views.get(uid)
        if pod.metadata.deletion_timestamp is not None or (view is not None and view.sandboxes):
            return uid not in self._admit_again
        return self._phase(pod) in TERMINAL_PHASES

    def _has_ended(self, uid: str) -> bool:
        """Return True for a pod with a final phase and without processes."""
        return self._phase(self.desired.pods[uid]) in TERMINAL_PHASES and not self._has_processes(uid)

    def _has_processes(self, uid: str) -> bool:
        return uid in self._views and self._views[uid].has_processes

    def _begin_anew(self, uid: str) -> None:
        """Forget the end of a pod that an earlier start of the agent rejected or evicted."""
        self._statuses.pop(uid, None)
        self.context.ends.forget(uid)  # a deletion since has a grace period of its own
        self.peer("status").tell(RemovePod(pod_uid=uid))
        is_deleted = self.desired.pods[uid].metadata.deletion_timestamp is not None
        if not is_deleted and not self._has_processes(uid):
            self._admit_again.add(uid)

    def _phase(self, pod: Pod) -> str | None:
        return (self._statuses.get(pod.metadata.uid) or pod.status).phase

    def _give_worker(self, uid: str) -> None:
        """Give an admitted or rejected pod its worker."""
        pod = self.allocations.current(self.desired.pods[uid])
        goes_on = self._has_processes(uid)  # it gets a worker in any case
        unclaimed = {} if self.desired.ready() else self._views
        others = (worker.pod for worker in self.workers.values())
        if is_static(pod) and not goes_on and runs_under(pod, others, unclaimed):
            if uid in self.workers:
                self.workers[uid].wanted_again()
            waiting = self._waiting[full_name(pod)]  # static pods of one full name never run at the same time
            if uid not in waiting:
                waiting.append(uid)
            self._end_replaced()
            return
        self._admit_again.discard(uid)
        is_unknown = self._foreign.claim(uid) or uid in self._failed
        view = None if is_unknown else self._views.pop(uid, PodView())
        if view is None or view.sandboxes:
            self._mark(uid)
        self._start_worker(pod, view, self.admission_queue.termination(uid))

    def _has_something(self, pod: Pod) -> bool:
        uid = pod.metadata.uid
        return uid in self._foreign or uid in self._views or pod_cgroup_exists(pod, self.settings)

    def _mark(self, uid: str) -> None:
        """Mark a wanted pod that runs already: its mark is lost if the root directory was."""
        try:
            mark_pod(self.settings.root_dir, uid)
        except OSError as error:
            log.warning("cannot make the directory of pod %s: %s", uid, error)

    def _start_worker(self, pod: Pod, view: PodView | None, termination: TerminationRequest | None) -> None:
        uid = pod.metadata.uid
        is_over = termination is not None or self._phase(pod) in TERMINAL_PHASES
        self.assignments.pod_started(pod, active=not is_over or view is None or view.has_processes)
        end = self.context.ends.records.get(uid)
        if termination is not None and end is not None:  # it ends already: it has the rest of its grace period
            termination = replace(termination, grace_period_s=remaining_grace_s(end, time.monotonic()))
        initial = InitialState(
            view=view,
            is_new=view == PodView() and not is_marked(self.settings.root_dir, uid),
            status=self._statuses.pop(uid, None),
            results=tuple(self._results.pop(uid, ())),
            desired=self.desired.pods.get(uid),
            pending=self.allocations.allocator.pending.get(uid),
            termination=termination,
            trace=self.desired.traces.pop(uid, None),
            timeline=self._timelines.begin(
                pod, self.desired.arrivals.pop(uid, None), is_new=view is None or not view.sandboxes
            ),
        )
        if termination is None:
            self.allocations.admitted(pod)
            self.api_gate.pod_admitted(uid)
            if self.desired.from_api(uid):
                self.checkpoint.has_begun(uid)
        PodWorker.start(
            self.context,
            pod,
            initial,
            on_created=self._worker_created,
            on_finished=lambda *end: self.post(self._worker_finished, *end),
        )

    def _worker_created(self, worker: PodWorker) -> None:
        self.workers[worker.pod.metadata.uid] = worker

    def _end_pod(self, uid: str, termination: TerminationRequest) -> None:
        if uid in self.workers:
            self.workers[uid].end(termination)
        else:
            self._pod_terminated(uid)

    def _pod_terminated(self, uid: str) -> None:
        """Free the resources of a pod of which no process runs any more."""
        self.admission_queue.pod_terminated(uid)
        self.assignments.pod_gone(uid)
        self.api_gate.pod_gone(uid)
        self.checkpoint.has_terminated(uid)
        self.allocations.retry_pending_resizes("pods_removed")

    def _remove(self, uid: str) -> None:
        self._statuses.pop(uid, None)
        for waiting in self._waiting.values():
            if uid in waiting:
                waiting.remove(uid)
        if self.admission_queue.pod_removed(uid):
            self.checkpoint.save_soon()
        worker = self.workers.get(uid)
        if worker is not None:
            worker.end(TerminationRequest(deleted=True))
        else:
            self.assignments.pod_gone(uid)

    def _end_orphans(self) -> None:
        if self.desired.ready():
            unwanted = [uid for uid in self._views if uid not in self.workers and uid not in self.desired.pods]
            views = {uid: self._views.pop(uid) for uid in unwanted}
            for uid in self._foreign.ours_of(views):
                self._end_orphan(uid, views[uid])

    def _end_replaced(self) -> None:
        """End orphans for which new static pods wait. The other orphans run until each source has sent its pods."""
        names = {name for name, uids in self._waiting.items() if uids}
        views = {uid: view for uid, view in self._views.items() if uid not in self.desired.pods}
        for uid in self._foreign.ours_of(replaced(views, names, self.desired.seen)):
            self._end_orphan(uid, self._views.pop(uid))

    def _end_orphan(self, uid: str, view: PodView) -> None:
        pod = orphan_pod(uid, view)
        log.info("pod %s (%s) runs but no source wants it: ending it", full_name(pod), uid)
        self._start_worker(pod, view, TerminationRequest(deleted=True))

    def _worker_finished(self, uid: str, failed: bool) -> None:
        worker = self.workers.pop(uid, None)
        self._not_begun.changed()
        if worker is None:
            return
        if failed:
            self._failed.add(uid)
            if worker.report.last is not None:
                self._statuses[uid] = worker.report.last
            self._results[uid].extend(worker.report.results())
            self.after(WORKER_RESTART_S, self._replace_worker, worker)
            return
        self.admission_queue.pod_terminated(uid)
        self.assignments.pod_gone(uid)
        self.allocations.finished(uid)
        waiting = self._waiting.pop(full_name(worker.pod), [])
        self._check_complete()
        if (left := worker.runtime.view).sandboxes:
            self._views[uid] = left
            self._admit_again.add(uid)  # its restart counts go on
        # The pod may be wanted again since, or another of its full name waits.
        self._enter(one for one in dict.fromkeys((uid, *waiting)) if one in self.desired.pods)
        self._end_orphans()

    def _replace_worker(self, failed: PodWorker) -> None:
        uid = failed.pod.metadata.uid
        self._failed.discard(uid)
        if uid not in self.workers:
            pod = self.allocations.current(self.desired.pods.get(uid, failed.pod))
            self._start_worker(pod, None, failed.termination)
            if uid not in self.desired.pods:
                self._remove(uid)

    # From the peers

    @handles(VolumesMounted)
    def on_volumes_mounted(self, message: VolumesMounted) -> None:
        """From volume: volumes that it had refused are mounted now."""
        worker = self.workers.get(message.pod_uid)
        if worker is not None:
            worker.volumes_changed()

    @handles(PodChanged)
    def on_pod_changed(self, change: PodChanged) -> None:
        """From pleg. A pod without a worker was made by an abandoned call that took effect after all."""
        worker = self.workers.get(change.pod_uid)
        if worker is not None:
            worker.runtime_changed(change.exited)
        elif self._runtime_seen and change.pod_uid not in self._foreign:
            self.spawn(self._look_for(change.pod_uid), "look_for")

    async def _look_for(self, uid: str) -> None:
        try:
            view = await list_pod(self.context.cri, uid)
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
        """From objects: wake the workers of pods that refer to a changed object."""
        self.api_gate.objects_changed(change)
        for uid in self.context.published.users(change):
            if uid in self.workers:
                self.workers[uid].wake()

    @handles(ProbeResults)
    def on_probe_results(self, message: ProbeResults) -> None:
        """From probe. `full`: probe has sent all results that it keeps."""
        self._take_results(message.results)
        if message.full and not self.context.probes_known:
            self.context.probes_known = True
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
            elif not self._complete or uid in self._failed:
                self._results[uid].extend(own)

    @handles(EvictPod)
    def on_evict(self, request: EvictPod) -> Done:
        """From eviction: end a pod, and keep it from running again. Refused: there is no such pod.

        A pod that ends already has the shorter grace period. As in the kubelet, a terminated pod keeps its status.
        """
        worker = self.workers.get(request.pod_uid)
        if worker is None:
            raise Refused("NotFound", f"no pod with UID {request.pod_uid}", retry=False)
        if worker.stage == "terminated":
            return Done()
        if not request.with_machine:
            # First: after a kill in between, the next process would start the ended containers again.
            self.admission_queue.evicted(request.pod_uid, request.reason, request.message)
            grace_s = end_grace_s(worker.pod, request.grace_period_s)
            self.context.ends.begin(request.pod_uid, time.monotonic() + grace_s)
            self.checkpoint.save()
        worker.end(
            TerminationRequest(grace_period_s=request.grace_period_s, reason=request.reason, message=request.message)
        )
        return Done()

    @handles(SetNodeShutdown)
    def on_node_shutdown(self, message: SetNodeShutdown) -> None:
        """From node: while the machine shuts down, new pods are rejected, and resizes wait."""
        self.admission_queue.shutting_down = message.shutting_down
        self.allocations.retry_pending_resizes("periodic_retry")

    @handles(SetHostIPs)
    def on_host_ips(self, message: SetHostIPs) -> None:
        """From node: the Node's addresses, which all pods report."""
        before = self.context.host_ips_told, self.context.host_ips
        self.context.host_ips_told = True
        if before != (True, message.ips):
            self._use_host_ips(message.ips)

    @handles(SetNodePressure)
    def on_pressure(self, message: SetNodePressure) -> None:
        """From eviction: conditions of the node that admission checks."""
        self.admission_queue.pressure = message.conditions
        self.allocations.retry_pending_resizes("periodic_retry")

    @handles(ResourcesState)
    def on_resources_state(self, state: ResourcesState) -> None:
        """From resources: what it assigns to containers."""
        self.api_gate.set_device_resources(state.device_resources)
        self.assignments.state_changed(state)
        for worker in self.workers.values():
            if worker.sync.waits_for_claims:
                worker.wake()

    @handles(StatusWritten)
    def on_status_written(self, message: StatusWritten) -> None:
        """From status."""
        self._timelines.written(message)

    @handles(GetTimelines)
    def on_get_timelines(self, request: GetTimelines) -> Timelines:
        """For consoles and the web page."""
        return self._timelines.answer(request.pod)

    @handles(SetResourceHealth)
    def on_resource_health(self, message: SetResourceHealth) -> None:
        """From resources: the health of devices, which the pods' statuses show."""
        for uid in self.context.health.apply(message):
            if uid in self.workers:
                self.workers[uid].wake()

    @handles(ListPodWorkers)
    def on_list(self, request: ListPodWorkers) -> PodWorkerStates:
        """For container_gc, eviction and consoles."""
        pods = states(self.workers, self.context.published.pods, request.uids, with_pods=request.with_pods)
        waiting = (self.desired.pods.keys() | self._failed) - self.workers.keys()
        return PodWorkerStates(pods=pods, sources_ready=self.is_complete(), waiting=tuple(waiting))

    def describe(self) -> dict[str, Any]:
        """For a console: the state of the start, and each pod with its stage and wait reasons."""
        return {
            "sources_ready": self.desired.ready(),
            "runtime_seen": self._runtime_seen,
            "pressure": list(self.admission_queue.pressure),
            "not_begun": self._reasons_not_begun(),
            "pods": described(self.workers.values()),
            "left_alone": self._foreign.described(),
        }

    def _known_pods(self) -> list[Pod]:
        return [*(worker.pod for worker in self.workers.values()), *self.desired.pods.values()]

    def _reasons_not_begun(self) -> dict[str, str]:
        found = not_begun(
            self.desired,
            self.workers,
            self._waiting,
            self.api_gate.may_decide,
            self._for_runtime,
            self.assignments.waiting(),
        )
        return found | self._foreign.refused


ACTOR = PodWorkers
