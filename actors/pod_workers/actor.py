"""The pod_workers actor: keeps the desired pods, runs one PodWorker per pod, and talks to the peers.

It does the work of the kubelet's syncLoop, podManager and the outer part of podWorkers. A new pod passes, in this
order, the desired pods, the admission queue, the allocation manager, and then a worker. No handler waits for a pod.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from actors._base import handles
from actors._base.actor import Actor, ActorContext
from actors._host.system import agent_id
from actors.pod_workers.address_search import AddressSearch
from actors.pod_workers.assembly import HOST_INFO_S, HostInfo, find_host_ips, read_host_info
from actors.pod_workers.cri_config.resolv_conf import ResolvConfCheck
from actors.pod_workers.decide.termination import end_grace_s
from actors.pod_workers.model.desired import API, Desired, full_name
from actors.pod_workers.model.termination_request import TerminationRequest
from actors.pod_workers.model.view import PodView
from actors.pod_workers.pods.parts import PartCallbacks, Parts
from actors.pod_workers.pods.unclaimed import Unclaimed
from actors.pod_workers.worker import PodWorker
from actors.pod_workers.worker_states import NotBegun, described, not_begun, set_gauges, states
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
from proto.pods.status import RemovePod
from proto.wire.errors import ActorError, Refused
from proto.wire.message import Done

log = logging.getLogger(__name__)

RESULTS_S = 0.05
"""A start waits this long for probe results. probe sends later ones itself, and no readiness is published before."""
WORKER_RESTART_S = 1.0
"""Before a worker that failed by a bug is replaced: the next one may fail as well."""


class PodWorkers(Actor):
    """See the module. Pods are keyed by UID."""

    name = "pod_workers"
    asks = frozenset({"status", "probe", "pleg", "volume", "image_pull", "objects", "resources", "stats"})

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self.desired = Desired(self.settings.pod_sources)
        self.workers: dict[str, PodWorker] = {}
        self._unclaimed = Unclaimed(self.settings)
        self._not_begun = NotBegun(self, self._reasons_not_begun)

    # Start

    async def rebuild(self) -> None:
        """Read the machine and the checkpoint, list the runtime's pods, and ask status and probe for their facts."""
        ips = self.blocking(HOST_INFO_S, find_host_ips, self.settings)  # beside the rest: the resolver may be slow
        host = await self.blocking(HOST_INFO_S, read_host_info, self.settings, self.bus.supervisor_pidfd)
        # Recorded, so that a replay knows whether the agent had started anew.
        agent = await self.blocking(HOST_INFO_S, agent_id, self.bus.supervisor_pidfd)
        self._assemble(host, agent)
        statuses = self.spawn(self._feeds.published_statuses(), "statuses")
        results = self.peer("probe").ask(GetResults(), RESULTS_S)
        await self._runtime.see()
        self._unclaimed.statuses = await statuses
        self.context.host_ips = await ips
        try:
            self._take_results((await results).results)
            self.context.probes_known = True
        except ActorError as error:
            log.debug("cannot read the probe results: %s", error)

    def on_shutdown(self) -> None:
        """Let the runtime start the containers that it was asked for."""
        self.context.cri.wait_for_starts()

    def _assemble(self, host: HostInfo, agent: str) -> None:
        callbacks = PartCallbacks(
            runtime_seen=self._reconcile_all,
            found_in_runtime=self._found_in_runtime,
            go_on_alone=self._go_on_alone,
            end_pod=self._end_pod,
            pod_terminated=self._pod_terminated,
            worker_finished=self._worker_finished,
        )
        self._parts = parts = Parts(self, host, agent, self.desired, self.workers, self._unclaimed, callbacks)
        self.checkpoint, self.context, self.cgroups = parts.checkpoint, parts.context, parts.cgroups
        self.admission_queue, self.api_gate = parts.admission_queue, parts.api_gate
        self.allocations, self.assignments = parts.allocations, parts.assignments
        self._runtime, self._feeds, self._starts = parts.runtime, parts.feeds, parts.starts

    def on_ready(self) -> None:
        """Start reading our own Node, and the checks of this machine."""
        self.api_gate.begin()
        self._parts.stuck.begin()
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
        self._feeds.peer_started(name)

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
        if not self._runtime.seen:
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
        self._starts.end_orphans()  # first: a static pod waits for an orphan of its full name
        if self.desired.ready():
            self._forget_gone()
        if API in self.desired.seen:
            self.checkpoint.server_answered()
        self._enter(uid for uid in self.desired.pods if uid not in self.workers)
        self.allocations.retry_pending_resizes("pods_added")
        self.assignments.listed.reconciled()
        self._feeds.check_complete()
        self.cgroups.pods_changed()

    def _forget_gone(self) -> None:
        """Forget pods that were removed while this actor was down: the same UID later is a new pod."""
        wanted = self.desired.pods.keys()
        self._unclaimed.keep_statuses(wanted)
        self.admission_queue.keep_rejected(wanted)
        self.allocations.keep(set(wanted))
        self.context.ends.keep(wanted | self.workers.keys())

    def _enter(self, uids: Iterable[str]) -> None:
        wanted = list(uids)
        self.admission_queue.count(
            uid for uid in wanted if self._unclaimed.has_processes(uid) and self._awaits_server(uid)
        )
        accepted = [uid for uid in wanted if not self._awaits_server(uid) and not self._is_refused(uid)]
        if not self.admission_queue.rejected_before.isdisjoint(accepted):
            self.checkpoint.save_soon()  # else the next process would decide on them again
        for uid in self.admission_queue.decide_again(accepted):
            self._begin_anew(uid)
        pods = self.desired.pods
        self.admission_queue.add(
            accepted,
            lambda uid: self._unclaimed.is_beyond_admission(pods[uid]),
            lambda uid: self._unclaimed.has_ended(pods[uid]),
        )

    def _awaits_server(self, uid: str) -> bool:
        return self.api_gate.awaits_server(uid, runs=self._unclaimed.has_processes(uid))

    def _is_refused(self, uid: str) -> bool:
        return uid not in self.workers and self._unclaimed.is_refused(self.desired.pods[uid])

    def _go_on_alone(self) -> None:
        self.checkpoint.settled()
        if self._runtime.seen:
            self._reconcile_all()

    def _begin_anew(self, uid: str) -> None:
        """Forget the end of a pod that an earlier start of the agent rejected or evicted."""
        self._unclaimed.begin_anew(self.desired.pods[uid])
        self.context.ends.forget(uid)  # a deletion since has a grace period of its own
        self.peer("status").tell(RemovePod(pod_uid=uid))

    # Ends

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
        self._unclaimed.statuses.pop(uid, None)
        self._starts.withdraw(uid)
        if self.admission_queue.pod_removed(uid):
            self.checkpoint.save_soon()
        worker = self.workers.get(uid)
        if worker is not None:
            worker.end(TerminationRequest(deleted=True))
        else:
            self.assignments.pod_gone(uid)

    def _worker_finished(self, uid: str, failed: bool) -> None:
        worker = self.workers.pop(uid, None)
        self._not_begun.changed()
        if worker is None:
            return
        if failed:
            self._unclaimed.worker_failed(uid, worker.report.last, worker.report.results())
            self.after(WORKER_RESTART_S, self._replace_worker, worker)
            return
        self.admission_queue.pod_terminated(uid)
        self.assignments.pod_gone(uid)
        self.allocations.finished(uid)
        waiting = self._starts.waiting.pop(full_name(worker.pod), [])
        self._feeds.check_complete()
        self._unclaimed.left_by_worker(uid, worker.runtime.view)
        # The pod may be wanted again since, or another of its full name waits.
        self._enter(one for one in dict.fromkeys((uid, *waiting)) if one in self.desired.pods)
        self._starts.end_orphans()

    def _replace_worker(self, failed: PodWorker) -> None:
        uid = failed.pod.metadata.uid
        self._unclaimed.failed.discard(uid)
        if uid not in self.workers:
            pod = self.allocations.current(self.desired.pods.get(uid, failed.pod))
            self._starts.start(pod, None, failed.termination)
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
        elif self._runtime.seen and change.pod_uid not in self._unclaimed.foreign:
            self._runtime.look_for(change.pod_uid)

    def _found_in_runtime(self, uid: str, view: PodView) -> None:
        if uid in self.workers:
            self.workers[uid].runtime_changed(())
        elif view.sandboxes or view.containers:
            self._unclaimed.views[uid] = view
            self._starts.end_orphans()

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
            elif not self._feeds.full or uid in self._unclaimed.failed:
                self._unclaimed.results[uid].extend(own)

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
        self._starts.timelines.written(message)

    @handles(GetTimelines)
    def on_get_timelines(self, request: GetTimelines) -> Timelines:
        """For consoles and the web page."""
        return self._starts.timelines.answer(request.pod, self.settings.node_name)

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
        waiting = (self.desired.pods.keys() | self._unclaimed.failed) - self.workers.keys()
        return PodWorkerStates(pods=pods, sources_ready=self._parts.is_complete(), waiting=tuple(waiting))

    def describe(self) -> dict[str, Any]:
        """For a console: the state of the start, and each pod with its stage and wait reasons."""
        return {
            "sources_ready": self.desired.ready(),
            "runtime_seen": self._runtime.seen,
            "pressure": list(self.admission_queue.pressure),
            "not_begun": self._reasons_not_begun(),
            "pods": described(self.workers.values()),
            "left_alone": self._unclaimed.foreign.described(),
        }

    def _reasons_not_begun(self) -> dict[str, str]:
        found = not_begun(
            self.desired,
            self.workers,
            self._starts.waiting,
            self.api_gate.may_decide,
            self._runtime.waits,
            self.assignments.waiting(),
        )
        return found | self._unclaimed.foreign.refused


ACTOR = PodWorkers
