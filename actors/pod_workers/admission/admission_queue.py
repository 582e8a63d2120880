"""The admission queue: new pods, the resources that admitted pods hold, and rejected pods.

`admission.chain` decides on one pod; this module decides which pod comes next. Pods are decided on in the order of
their creation, one at a time. While the victims of a critical pod end, later pods wait, since they would take the
resources that are freed for it. A pod that runs already is never decided on again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from actors._events.recorder import Recorder
from actors._host.node import shutdown
from actors._metrics import kubelet as metrics
from actors.pod_workers.admission import Admitted, NodeInfo, Preempt, Rejection, Share, chain
from actors.pod_workers.decide import termination
from actors.pod_workers.model import reasons
from actors.pod_workers.model.allocation import PodResourceInfo
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.model.termination_request import TERMINAL_PHASES, TerminationRequest
from proto.v1 import Pod
from proto.v1.scalars.quantity import QuantityError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCallbacks:
    """The actor's functions that the queue calls."""

    start_worker: Callable[[str], None]
    """Start a worker for the pod of this UID. `AdmissionQueue.termination` tells whether the pod is rejected."""
    end_pod: Callable[[str, TerminationRequest], None]
    save_checkpoint: Callable[[], None]
    """Write `AdmissionQueue.rejected` now."""
    after: Callable[[float, Callable[[], None]], object]
    """Call a function after these seconds."""
    events: Recorder
    shares_changed: Callable[[], None] = lambda: None
    """The resources that the node's pods hold have changed."""
    allocated: Callable[[Pod], Pod] = lambda pod: pod
    """The pod with the resources allocated to it, which differ from its spec while a resize waits."""
    actuated: Callable[[str], PodResourceInfo | None] = lambda uid: None  # noqa: ARG005 - the signature
    """The resources that containers of this UID may still have; None when they have the allocated ones."""
    may_decide: Callable[[str], bool] = lambda uid: True  # noqa: ARG005 - the signature
    """True when the facts that the admission of this UID depends on are known; else `advance` follows."""
    refresh_node: Callable[[str], bool] = lambda uid: False  # noqa: ARG005 - the signature
    """Read the node's labels anew for this UID. True: they are being read, and `node_refreshed` follows."""
    assign: Callable[[str, bool], bool] = lambda uid, trial: False  # noqa: ARG005 - the signature
    """Assign CPUs, memory and devices to the pod of this UID. False: it needs none. A trial frees them again.

    True: `assigned`, `not_assigned` or `assigned_later` follows.
    """
    release: Callable[[str], None] = lambda uid: None  # noqa: ARG005 - the signature
    """Release what `assign` has assigned, or is assigning: the pod is rejected."""
    retry_resizes: Callable[[], None] = lambda: None
    """A preemption is over: decide on the resizes, which have waited for it."""


@dataclass
class Preemption:
    """A critical pod that is admitted, or resized, once its victims have terminated."""

    uid: str
    victims: set[str]
    resizes: bool
    """The pod runs already."""


class AdmissionQueue:
    """See the module. All sets are of UIDs. Used in the actor's mailbox thread only."""

    def __init__(
        self,
        desired: Desired,
        node: NodeInfo,
        callbacks: AdmissionCallbacks,
        rejected: dict[str, tuple[str, str]] | None = None,
        rejected_before: set[str] | None = None,
        rejected_by_earlier_start: dict[str, tuple[str, str]] | None = None,
        served_by_other_agent: set[str] | None = None,
    ) -> None:
        self.node = node
        self.pressure: tuple[str, ...] = ()
        """Conditions of the node: MemoryPressure, DiskPressure, PIDPressure."""
        self.shutting_down = False
        """The machine shuts down: every new pod is rejected."""
        self.rejected: dict[str, tuple[str, str]] = {} if rejected is None else rejected
        """UID to (reason, message) of rejected and evicted pods. Checkpointed, since they must not run again."""
        self.rejected_before: set[str] = set() if rejected_before is None else rejected_before
        """UIDs in `rejected` from an earlier start of the agent. Their pods have not come yet. Checkpointed."""
        self.rejected_by_earlier_start: dict[str, tuple[str, str]] = (
            {} if rejected_by_earlier_start is None else rejected_by_earlier_start
        )
        """UID to (reason, message) of pods that an earlier start rejected and this one decides on again.

        Checkpointed.
        """
        self.served_by_other_agent: set[str] = set() if served_by_other_agent is None else served_by_other_agent
        """UIDs in `rejected_before` of pods that another agent may have run since. Checkpointed."""
        self._desired = desired
        self._callbacks = callbacks
        self._shares: dict[str, Share] = {}
        self._queue: list[str] = []
        self._preemption: Preemption | None = None
        self._room_made: set[str] = set()
        """Critical pods whose victims have ended, or ought to: admitted or resized without another preemption."""
        self._assigning: dict[str, Share | None] = {}
        """Pods that are assigned resources at the moment, with the share that later pods do not take.

        None: a trial of a pod that does not fit. It holds nothing, and costs no other pod its place.
        """
        self._tried: set[str] = set()
        """Pods whose trial the resource managers passed."""
        self._assigned_later: set[str] = set()
        """Pods that wait until resources can be assigned to them. They hold no share."""
        self._assigned: set[str] = set()
        self._awaiting_node: set[str] = set()
        self._node_was_fresh: set[str] = set()

    def decide_again(self, uids: Iterable[str]) -> list[str]:
        """Forget why an earlier start of the agent rejected or evicted pods. Returns their UIDs. Before `add`.

        The kubelet keeps it in memory, so each of its starts gives static pods another chance. Their UID is a hash of
        the manifest, which need not change. Pods of the API server stay Failed: the server says so, or is to be told.
        It was not told if another agent has served since, and the pod has no final phase: that agent ran it.
        """
        come = [uid for uid in uids if uid in self.rejected_before]
        again = [uid for uid in come if uid in self.rejected and self._has_another_chance(uid)]
        self.rejected_before.difference_update(come)
        self.served_by_other_agent.difference_update(come)
        for uid in again:
            self.rejected_by_earlier_start[uid] = self.rejected.pop(uid)
        return again

    def _has_another_chance(self, uid: str) -> bool:
        if not self._desired.from_api(uid):
            return True
        return uid in self.served_by_other_agent and self._desired.pods[uid].status.phase not in TERMINAL_PHASES

    def stays_rejected(self, uid: str) -> bool:
        """Return True for a rejected or evicted pod, unless another agent may have run it since."""
        return uid in self.rejected and uid not in self.served_by_other_agent

    def old_ends(self) -> dict[str, tuple[str, str]]:
        """UID to the (reason, message) with which an earlier start of the agent ended a pod that has begun anew."""
        return {uid: why for uid, why in self.rejected_by_earlier_start.items() if uid not in self.rejected}

    def count(self, uids: Iterable[str]) -> None:
        """Take the shares of pods that run, and whose workers start later."""
        for uid in uids:
            if uid not in self._shares:
                self._take_share(uid)

    def add(self, uids: Iterable[str], runs_already: Callable[[str], bool], has_ended: Callable[[str], bool]) -> None:
        """Queue pods that have no worker. Pods that run or were decided on before go first and stay as decided.

        Of those, the pods that have ended hold no share.
        """
        new = [uid for uid in uids if uid not in self._queue]
        known = [uid for uid in new if uid in self._shares or uid in self.rejected or runs_already(uid)]
        for uid in known:
            if uid not in self.rejected and not has_ended(uid):
                self._take_share(uid)
        for uid in known:
            self._callbacks.start_worker(uid)
        self._queue += sorted(
            (uid for uid in new if uid not in known),
            key=lambda uid: self._desired.pods[uid].metadata.creation_timestamp or "",
        )
        self.advance()

    def termination(self, uid: str) -> TerminationRequest | None:
        """The request that ends a rejected or evicted pod; None for a pod that may run."""
        if uid not in self.rejected:
            return None
        reason, message = self.rejected[uid]
        return TerminationRequest(reason=reason, message=message, grace_period_s=0)

    def shares(self) -> list[Share]:
        """The resources of every admitted pod that has not terminated."""
        return list(self._shares.values())

    def other_shares(self, uid: str) -> list[Share]:
        """The same without the pod of this UID."""
        held = self._shares | self._assigning
        return [share for other, share in held.items() if other != uid and share is not None]

    def has_share(self, uid: str) -> bool:
        """Return True for an admitted pod that has not terminated."""
        return uid in self._shares

    def resized(self, pod: Pod) -> bool:
        """Replace the share of an admitted pod whose allocated or actuated resources have changed.

        True if it holds less of a resource than before.
        """
        uid = pod.metadata.uid
        before = self._shares.get(uid)
        if before is None:
            return False
        self._shares[uid] = share = Share.of(pod, self._callbacks.actuated(uid))
        if share.requests != before.requests:
            self._callbacks.shares_changed()
        return any(share.held.get(name, 0) < amount for name, amount in before.held.items())

    def evicted(self, uid: str, reason: str, message: str) -> None:
        """Record that the node ends this pod and must not run it again. It holds its share until it has terminated."""
        self.rejected[uid] = (reason, message)

    def pod_terminated(self, uid: str) -> None:
        """Free the share of a pod of which no process runs any more."""
        self._free_share(uid)
        if self._preemption is not None and uid in self._preemption.victims:
            self._preemption.victims.discard(uid)
            if not self._preemption.victims:
                self._finish_preemption()

    def pod_removed(self, uid: str) -> bool:
        """Forget a pod that no source wants. True if it was rejected or evicted, by this start or an earlier one."""
        self._free_share(uid)
        self._awaiting_node.discard(uid)
        self._leave_queue(uid)
        if self._preemption is not None and self._preemption.uid == uid:
            self._preemption = None
            self.advance()
        was_rejected_earlier = self.rejected_by_earlier_start.pop(uid, None) is not None
        return self.rejected.pop(uid, None) is not None or was_rejected_earlier

    def keep_rejected(self, wanted: Iterable[str]) -> None:
        """Forget every rejected pod that is not wanted any more."""
        kept = set(wanted)
        for known in (self.rejected, self.rejected_by_earlier_start):
            for uid in known.keys() - kept:
                del known[uid]

    # Decisions

    def node_refreshed(self, uid: str) -> None:
        """The node's labels were read anew for this pod, or could not be read: decide on it now."""
        if uid in self._awaiting_node:
            self._awaiting_node.discard(uid)
            self._node_was_fresh.add(uid)
            self.advance()

    def assigned(self, uid: str) -> None:
        """CPUs, memory and devices are assigned to this pod, or could be: decide on it again."""
        if uid in self._assigning or uid in self._assigned_later:
            trial = uid in self._assigning and self._assigning[uid] is None
            done = self._tried if trial else self._assigned
            self._drop_assignment(uid)
            done.add(uid)
            self.advance()

    def not_assigned(self, uid: str, rejection: Rejection) -> None:
        """Reject this pod: it never gets its CPUs, memory or devices."""
        if uid in self._assigning or uid in self._assigned_later:
            self._leave_queue(uid)
            self._reject(uid, rejection)
            self.advance()

    def assigned_later(self, uid: str, *, lasting: bool = False) -> None:
        """Let this pod wait: it may get its CPUs, memory and devices later. Other pods may take its share meanwhile.

        `lasting`: it has waited before. Then it is rejected if it would be with its resources, too, unless a preemption
        is about to make room.
        """
        if uid not in self._assigning:
            return
        del self._assigning[uid]
        self._assigned_later.add(uid)
        if lasting and self._preemption is None:
            verdict = self._first_rejection(uid) or self._decide(uid)
            if isinstance(verdict, Rejection) and not self._start_node_refresh(uid, verdict):
                self._leave_queue(uid)
                self._reject(uid, verdict)
        self.advance()

    def try_assigning(self, uid: str) -> None:
        """Decide again on a pod for which `assigned_later` was called."""
        if uid in self._assigned_later:
            self._assigned_later.discard(uid)
            self.advance()

    def advance(self) -> None:
        """Decide on every pod that can be decided on now."""
        if not self._desired.local_seen():
            return  # pods of manifests may run here and hold resources that are not counted yet
        while self._preemption is None and (uid := self._next()) is not None:
            verdict: chain.Verdict | None = self._first_rejection(uid)
            if verdict is None:
                verdict = self._decide(uid)
                if self._start_assigning(uid, verdict) or self._start_node_refresh(uid, verdict):
                    continue
            self._leave_queue(uid)
            match verdict:
                case Rejection():
                    self._reject(uid, verdict)
                case Preempt():
                    self.preempt(uid, verdict)
                case _:
                    self._admit(uid)

    def _next(self) -> str | None:
        busy = self._awaiting_node | self._assigned_later | self._assigning.keys()
        ready = (uid for uid in self._queue if uid not in busy and self._callbacks.may_decide(uid))
        return next(ready, None)

    def _start_assigning(self, uid: str, verdict: chain.Verdict) -> bool:
        """Have CPUs, memory and devices assigned to a pod. True: the answer follows.

        The pod keeps its place meanwhile, and its share if it fits. As in the kubelet, a pod that does not fit is
        tried, too: the managers' reason comes before that of the predicates. But a critical pod first waits for its
        victims, which may hold what it needs.
        """
        trial = isinstance(verdict, Rejection)
        if isinstance(verdict, Preempt) or uid in self._assigned or (trial and uid in self._tried):
            return False
        self._assigning[uid] = None if trial else self._share(uid)
        if self._callbacks.assign(uid, trial):
            return True
        self._drop_assignment(uid)
        return False

    def _leave_queue(self, uid: str) -> None:
        if uid in self._queue:
            self._queue.remove(uid)
        self._node_was_fresh.discard(uid)
        self._room_made.discard(uid)
        self._drop_assignment(uid)

    def _drop_assignment(self, uid: str) -> None:
        self._assigning.pop(uid, None)
        self._assigned_later.discard(uid)
        self._assigned.discard(uid)
        self._tried.discard(uid)

    def _start_node_refresh(self, uid: str, verdict: chain.Verdict) -> bool:
        """Read the labels anew before a pod is rejected for them. True: `node_refreshed` follows.

        The scheduler may have chosen this node by a label that was set a moment ago.
        """
        misfit = isinstance(verdict, Rejection) and verdict.reason == chain.NODE_AFFINITY
        if not misfit or uid in self._node_was_fresh:
            return False
        self._awaiting_node.add(uid)  # before the call: `node_refreshed` may be called within it
        if self._callbacks.refresh_node(uid):
            return True
        self._awaiting_node.discard(uid)
        return False

    def _first_rejection(self, uid: str) -> Rejection | None:
        """The reason to reject a pod before anything is assigned to it; None: go on. Rejects nothing itself."""
        if self.shutting_down:
            return Rejection(shutdown.NOT_ADMITTED, shutdown.NOT_ADMITTED_MESSAGE)
        try:
            pod = self._share(uid).pod
            return None if uid in self._room_made else chain.rejection_before_resources(pod, self.node, self.pressure)
        except QuantityError as error:
            return Rejection(chain.UNEXPECTED, str(error))

    def _decide(self, uid: str) -> chain.Verdict:
        """The verdict on a pod that `_first_rejection` let pass. Raises QuantityError."""
        if uid in self._room_made:
            return Admitted()
        return chain.admit(self._share(uid), self.other_shares(uid), self.node)

    def _share(self, uid: str) -> Share:
        return Share.of(self._callbacks.allocated(self._desired.pods[uid]), self._callbacks.actuated(uid))

    def _take_share(self, uid: str) -> None:
        try:
            self._shares[uid] = self._share(uid)
        except QuantityError as error:
            log.warning("cannot count the resources of pod %s: %s", uid, error)
        self._callbacks.shares_changed()

    def _free_share(self, uid: str) -> None:
        if self._shares.pop(uid, None) is not None:
            self._callbacks.shares_changed()

    def _admit(self, uid: str) -> None:
        self._take_share(uid)
        self._callbacks.start_worker(uid)

    def _reject(self, uid: str, rejection: Rejection) -> None:
        pod = self._desired.pods[uid]
        log.warning("pod %s/%s: %s: %s", pod.metadata.namespace, pod.metadata.name, rejection.reason, rejection.message)
        metrics.ADMISSION_REJECTIONS.inc(rejection.reason)
        self.rejected[uid] = (rejection.reason, rejection.status_message)
        self._callbacks.save_checkpoint()
        self._callbacks.release(uid)
        self._callbacks.events.pod(pod, "Warning", rejection.reason, rejection.message)
        self._callbacks.start_worker(uid)

    # Preemption

    @property
    def is_preempting(self) -> bool:
        """Later pods and all resizes wait for the victims of a critical pod."""
        return self._preemption is not None

    def has_room(self, uid: str) -> bool:
        """True for a critical pod that needs no further preemption: its victims have ended, or did not in time."""
        return uid in self._room_made

    def preempt(self, uid: str, verdict: Preempt, *, resizes: bool = False) -> None:
        """End the victims of a critical pod. `retry_resizes` follows. Not while another preemption lasts."""
        victims = verdict.victims
        self._preemption = preemption = Preemption(uid, {share.pod.metadata.uid for share in victims}, resizes)
        for share in victims:
            self.evicted(share.pod.metadata.uid, reasons.PREEMPTING, reasons.PREEMPTED_MESSAGE)
        self._callbacks.save_checkpoint()  # first: after a kill here we would start them again and end other pods
        wait_s = 0.0
        for share in victims:
            meta = share.pod.metadata
            log.warning("pod %s/%s is preempted in order to admit a critical pod", meta.namespace, meta.name)
            self._callbacks.events.pod(share.pod, "Warning", reasons.PREEMPTING, reasons.PREEMPTED_MESSAGE)
            metrics.PREEMPTIONS.inc(verdict.resource)
            request = TerminationRequest(reason=reasons.PREEMPTING, message=reasons.PREEMPTED_MESSAGE)
            wait_s = max(wait_s, termination.kill_wait_s(share.pod, request) or 0.0)
            if meta.uid in self._queue:  # it was to get its resources: it gets a worker that ends it
                self._leave_queue(meta.uid)
                self._callbacks.start_worker(meta.uid)
            else:
                self._callbacks.end_pod(meta.uid, request)
        if self._preemption is preemption:
            self._callbacks.after(wait_s, lambda: self._preemption_timed_out(preemption))

    def _preemption_timed_out(self, preemption: Preemption) -> None:
        """As in the kubelet, the critical pod then starts or grows beside the victims that still run."""
        if self._preemption is preemption:
            victims = ", ".join(sorted(preemption.victims))
            log.error(
                "preempted pods %s have not ended in time: critical pod %s goes on beside them", victims, preemption.uid
            )
            self._finish_preemption(in_time=False)

    def _finish_preemption(self, *, in_time: bool = True) -> None:
        preemption, self._preemption = self._preemption, None
        if preemption is None:
            return
        if preemption.resizes:
            if not in_time:
                self._room_made.add(preemption.uid)
            self._callbacks.retry_resizes()
            self._room_made.discard(preemption.uid)
            self.advance()
        else:
            self._room_made.add(preemption.uid)
            self._queue.insert(0, preemption.uid)
            self.advance()
            self._callbacks.retry_resizes()
