"""Starts the workers: of admitted, rejected and ended pods, and of orphans, which end."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from actors._host.files.own_pods import is_marked, mark_pod
from actors._host.node.critical import is_static
from actors.pod_workers.model.desired import Desired, full_name
from actors.pod_workers.model.end_record import remaining_grace_s
from actors.pod_workers.model.orphans import orphan_pod, replaced, runs_under
from actors.pod_workers.model.termination_request import TERMINAL_PHASES, TerminationRequest
from actors.pod_workers.model.view import PodView
from actors.pod_workers.pods.unclaimed import Unclaimed
from actors.pod_workers.resources.allocation_manager import AllocationManager
from actors.pod_workers.resources.assignments import Assignments
from actors.pod_workers.shared.worker_context import WorkerContext
from actors.pod_workers.timeline import StartTimelines
from actors.pod_workers.worker import InitialState, PodWorker
from proto.v1 import Pod

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCallbacks:
    """The actor's functions that a start calls. Keyed by pod UID."""

    termination: Callable[[str], TerminationRequest | None]
    """`AdmissionQueue.termination`: the request that ends a rejected or evicted pod."""
    admitted: Callable[[str], None]
    """A worker of a pod that may run is about to start."""
    finished: Callable[[str, bool], None]
    """`on_finished` of a PodWorker. Called in the worker's thread."""


class WorkerStarts:
    """Used in the actor's mailbox thread. Reads the desired pods and the workers, and adds to the workers."""

    def __init__(
        self,
        context: WorkerContext,
        desired: Desired,
        workers: dict[str, PodWorker],
        unclaimed: Unclaimed,
        allocations: AllocationManager,
        assignments: Assignments,
        callbacks: StartCallbacks,
    ) -> None:
        self._context = context
        self._desired = desired
        self._workers = workers
        self._unclaimed = unclaimed
        self._allocations = allocations
        self._assignments = assignments
        self._callbacks = callbacks
        self.timelines = StartTimelines()
        self.waiting: dict[str, list[str]] = defaultdict(list)
        """Full name of a pod to UIDs that wait until the present pod of that name is gone."""

    def give(self, uid: str) -> None:
        """Start the worker of an admitted or rejected pod. A static pod waits while another of its full name runs."""
        pod = self._allocations.current(self._desired.pods[uid])
        goes_on = self._unclaimed.has_processes(uid)  # it gets a worker in any case
        unclaimed = {} if self._desired.ready() else self._unclaimed.views
        others = (worker.pod for worker in self._workers.values())
        if is_static(pod) and not goes_on and runs_under(pod, others, unclaimed):
            if uid in self._workers:
                self._workers[uid].wanted_again()
            waiting = self.waiting[full_name(pod)]  # static pods of one full name never run at the same time
            if uid not in waiting:
                waiting.append(uid)
            self._end_replaced()
            return
        view = self._unclaimed.take_view(uid)
        if view is None or view.sandboxes:
            self._mark(uid)
        self.start(pod, view, self._callbacks.termination(uid))

    def start(self, pod: Pod, view: PodView | None, termination: TerminationRequest | None) -> None:
        """Start the worker of `pod`, which has its allocated resources. `view` and `termination`: see InitialState."""
        uid = pod.metadata.uid
        is_over = termination is not None or self._unclaimed.phase(pod) in TERMINAL_PHASES
        self._assignments.pod_started(pod, active=not is_over or view is None or view.has_processes)
        initial = self._initial_state(pod, view, termination)
        if termination is None:
            self._allocations.admitted(pod)
            self._callbacks.admitted(uid)
        PodWorker.start(self._context, pod, initial, on_created=self._created, on_finished=self._callbacks.finished)

    def _initial_state(self, pod: Pod, view: PodView | None, termination: TerminationRequest | None) -> InitialState:
        uid, desired = pod.metadata.uid, self._desired
        root_dir = self._context.settings.root_dir
        end = self._context.ends.records.get(uid)
        if termination is not None and end is not None:  # it ends already: it has the rest of its grace period
            termination = replace(termination, grace_period_s=remaining_grace_s(end, time.monotonic()))
        is_new = view is None or not view.sandboxes
        return InitialState(
            view=view,
            is_new=view == PodView() and not is_marked(root_dir, uid),
            status=self._unclaimed.statuses.pop(uid, None),
            results=tuple(self._unclaimed.results.pop(uid, ())),
            desired=desired.pods.get(uid),
            pending=self._allocations.allocator.pending.get(uid),
            termination=termination,
            trace=desired.traces.pop(uid, None),
            timeline=self.timelines.begin(pod, desired.arrivals.pop(uid, None), is_new=is_new),
        )

    def _created(self, worker: PodWorker) -> None:
        self._workers[worker.pod.metadata.uid] = worker

    def _mark(self, uid: str) -> None:
        """Mark a pod that runs already as ours: a lost root directory has taken its mark along."""
        try:
            mark_pod(self._context.settings.root_dir, uid)
        except OSError as error:
            log.warning("cannot make the directory of pod %s, which marks it as this agent's: %s", uid, error)

    def withdraw(self, uid: str) -> None:
        """Forget a static pod that waits for its full name: no source has it any more."""
        for waiting in self.waiting.values():
            if uid in waiting:
                waiting.remove(uid)

    # Orphans

    def end_orphans(self) -> None:
        """End pods that no source wants, once every source has sent its pods."""
        if self._desired.ready():
            views, known = self._unclaimed.views, self._workers.keys() | self._desired.pods.keys()
            unwanted = {uid: views.pop(uid) for uid in list(views) if uid not in known}
            for uid in self._unclaimed.foreign.ours_of(unwanted):
                self._end_orphan(uid, unwanted[uid])

    def _end_replaced(self) -> None:
        """End orphans for which new static pods wait. The other orphans run until each source has sent its pods."""
        names = {name for name, uids in self.waiting.items() if uids}
        views = {uid: view for uid, view in self._unclaimed.views.items() if uid not in self._desired.pods}
        for uid in self._unclaimed.foreign.ours_of(replaced(views, names, self._desired.seen)):
            self._end_orphan(uid, self._unclaimed.views.pop(uid))

    def _end_orphan(self, uid: str, view: PodView) -> None:
        pod = orphan_pod(uid, view)
        log.info("pod %s (%s) runs but no source wants it: ending it", full_name(pod), uid)
        self.start(pod, view, TerminationRequest(deleted=True))
