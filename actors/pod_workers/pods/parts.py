"""Builds the parts of the pod_workers actor: admission, allocation, starts of workers, listing, and others.

They are built in the order in which a new pod passes them. Callbacks lead from one part to a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from actors._base import Actor
from actors._events.recorder import Recorder
from actors.pod_workers.admission.admission_queue import AdmissionCallbacks, AdmissionQueue
from actors.pod_workers.api_pods.api_admission_gate import ApiAdmissionGate
from actors.pod_workers.assembly import HostInfo, make_context
from actors.pod_workers.checkpoint import Checkpoint
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.model.termination_request import TerminationRequest
from actors.pod_workers.model.view import PodView
from actors.pod_workers.pods.peer_feeds import PeerFeeds
from actors.pod_workers.pods.runtime_listing import RuntimeListing
from actors.pod_workers.pods.unclaimed import Unclaimed
from actors.pod_workers.pods.worker_starts import StartCallbacks, WorkerStarts
from actors.pod_workers.resources.allocation_manager import AllocationManager
from actors.pod_workers.resources.assignments import Assignments
from actors.pod_workers.resources.node_cgroups import NodeCgroups
from actors.pod_workers.stuck_pods import StuckPods
from actors.pod_workers.worker import PodWorker
from proto.node.runtime import EMBEDDED
from proto.v1 import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCallbacks:
    """The actor's functions that the parts call, in its own thread. Keyed by pod UID."""

    runtime_seen: Callable[[], None]
    """The runtime answers after it had not."""
    found_in_runtime: Callable[[str, PodView], None]
    """`RuntimeListing.look_for` has its answer."""
    go_on_alone: Callable[[], None]
    """`on_alone` of the ApiAdmissionGate."""
    end_pod: Callable[[str, TerminationRequest], None]
    pod_terminated: Callable[[str], None]
    """No process of the pod runs any more."""
    worker_finished: Callable[[str, bool], None]
    """`on_finished` of a PodWorker."""


class Parts:
    """The parts of one pod_workers actor, connected to each other. Used in the actor's mailbox thread."""

    def __init__(
        self,
        actor: Actor,
        host: HostInfo,
        agent: str,
        desired: Desired,
        workers: dict[str, PodWorker],
        unclaimed: Unclaimed,
        callbacks: PartCallbacks,
    ) -> None:
        """`agent`: the ID of this start of the agent. `workers`: by pod UID."""
        self._desired, self._workers = desired, workers
        events = Recorder(actor.peer("events"))
        self.checkpoint = Checkpoint(actor, agent)
        saved = self.checkpoint.saved
        self.admission_queue = queue = AdmissionQueue(
            desired, host.node, self._admission_callbacks(actor, events, callbacks.end_pod), saved.rejected,
            saved.rejected_before, saved.rejected_by_earlier_start, saved.served_by_other_agent,
        )  # fmt: skip
        self.api_gate = ApiAdmissionGate(
            actor, desired, queue, callbacks.go_on_alone,
            lambda uid: uid in workers or unclaimed.has_processes(uid),
            lambda: self.allocations.retry_pending_resizes("periodic_retry"),
        )  # fmt: skip
        self.api_gate.recover(is_new_agent=not saved.is_settled, other_served=saved.awaits_server, ran=saved.ran)
        self.allocations = AllocationManager(
            actor, events, desired=desired, admission_queue=queue, workers=workers, is_complete=self.is_complete
        )
        self.assignments = Assignments(actor, events, desired, queue, self.allocations)
        self.context = make_context(
            actor, host, self.allocations, self.checkpoint, self.assignments.managed,
            restored=desired.restored, on_new_pod=self._check_complete, on_terminated=callbacks.pod_terminated,
        )  # fmt: skip
        self.runtime = RuntimeListing(
            actor, self.context, queue, unclaimed,
            on_seen=callbacks.runtime_seen, on_found=callbacks.found_in_runtime,
        )  # fmt: skip
        self.feeds = PeerFeeds(
            actor, self.context, self.checkpoint, desired, workers, queue, self.assignments, self.is_complete
        )
        self.starts = WorkerStarts(
            self.context, desired, workers, unclaimed, self.allocations, self.assignments,
            StartCallbacks(
                termination=queue.termination,
                admitted=self._admitted,
                finished=lambda *end: actor.post(callbacks.worker_finished, *end),
            ),
        )  # fmt: skip
        self.cgroups = NodeCgroups(actor, events, queue.shares, self.is_complete)
        endpoint = actor.settings.container_runtime_endpoint
        self.stuck = StuckPods(actor, events, self._known_pods, "" if endpoint == EMBEDDED else endpoint)
        self.cgroups.begin(host.machine, host.node.allocatable["memory"])

    def _admission_callbacks(
        self, actor: Actor, events: Recorder, end_pod: Callable[[str, TerminationRequest], None]
    ) -> AdmissionCallbacks:
        """The lambdas look up parts that do not exist yet: they are built after the admission queue."""
        return AdmissionCallbacks(
            start_worker=lambda uid: self.starts.give(uid),  # noqa: PLW0108
            end_pod=end_pod,
            save_checkpoint=self.checkpoint.save,
            after=actor.after,
            events=events,
            shares_changed=lambda: self.cgroups.pods_changed(),  # noqa: PLW0108
            allocated=lambda pod: self.allocations.current(pod),  # noqa: PLW0108
            actuated=lambda uid: self.allocations.still_held(uid),  # noqa: PLW0108
            may_decide=lambda uid: self.api_gate.may_decide(uid),  # noqa: PLW0108
            refresh_node=lambda uid: self.api_gate.refresh_node(uid),  # noqa: PLW0108
            assign=lambda uid, trial: self.assignments.assign(uid, trial=trial),
            release=lambda uid: self.assignments.pod_gone(uid),  # noqa: PLW0108
            retry_resizes=lambda: self.allocations.retry_pending_resizes("pods_removed"),
        )

    def is_complete(self) -> bool:
        """Return True when every source and the runtime have reported their pods."""
        return self.runtime.seen and self._desired.ready()

    def _check_complete(self) -> None:
        self.feeds.check_complete()

    def _admitted(self, uid: str) -> None:
        self.api_gate.pod_admitted(uid)
        if self._desired.from_api(uid):
            self.checkpoint.has_begun(uid)

    def _known_pods(self) -> Iterable[Pod]:
        return [*(worker.pod for worker in self._workers.values()), *self._desired.pods.values()]
