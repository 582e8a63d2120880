"""Who is let onto the node: the queue of new pods, what each admitted one takes of the node, and who was turned away.

Decisions are `admission`'s. Pods are taken in order of their creation, one at a time: while victims of a critical pod
end, those behind it wait, since they would get what is freed for it. What runs already is never asked again. Used in
the actor's mailbox thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from actors._events.recorder import Recorder
from actors._host.node import shutdown
from actors._metrics import kubelet as metrics
from actors.pod_workers import admission
from actors.pod_workers.admission import NodeInfo, Preempt, Rejection, Share, chain
from actors.pod_workers.decide import termination
from actors.pod_workers.model import reasons
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.model.termination_request import TerminationRequest
from proto.v1 import Pod
from proto.v1.scalars.quantity import QuantityError

log = logging.getLogger(__name__)

MINIMUM_WAIT_S = 10.0
"""Victims are waited for this long at least (the kubelet's killPodNow), else for one and a half grace periods."""


@dataclass(frozen=True, slots=True)
class AdmissionCallbacks:
    """What the actor does for the entrance."""

    place: Callable[[str], None]
    """The pod of this UID has its answer: run it, or publish that it was turned away (`Entrance.ending`)."""
    end: Callable[[str, TerminationRequest], None]
    """End the pod of this UID."""
    save: Callable[[], None]
    """Write the checkpoint now."""
    after: Callable[[float, Callable[[], None]], object]
    events: Recorder
    shares_changed: Callable[[], None] = lambda: None
    """The node's pods take more or less of it than before."""
    current: Callable[[Pod], Pod] = lambda pod: pod
    """The pod with the resources it has been granted, where a resize waits."""
    may_judge: Callable[[str], bool] = lambda uid: True  # noqa: ARG005 - the signature
    """Whether all is known that the admission of the pod of this UID goes by; `go_on` says when more of it is."""
    look_again: Callable[[str], bool] = lambda uid: False  # noqa: ARG005 - the signature
    """The pod does not fit the node's labels: whether they are read anew. `looked_again` says when they have been."""


@dataclass
class Waiting:
    """The critical pod that is let in once these are over."""

    uid: str
    victims: set[str]


class AdmissionQueue:
    """See the module. All sets are of UIDs."""

    def __init__(self, desired: Desired, node: NodeInfo, callbacks: AdmissionCallbacks) -> None:
        self.node = node
        self.pressure: tuple[str, ...] = ()
        self.shutting_down = False
        """The machine is going down: nobody is let in."""
        self.rejected: dict[str, tuple[str, str]] = {}
        """Turned away or evicted: reason and message of the status. Checkpointed: it is not to be run again."""
        self._desired = desired
        self._callbacks = callbacks
        self._shares: dict[str, Share] = {}
        self._queue: list[str] = []
        self._making_room: Waiting | None = None
        self._looking: set[str] = set()
        self._looked: set[str] = set()

    def enter(self, uids: Iterable[str], runs_already: Callable[[str], bool]) -> None:
        """Take pods in that have no worker. Those that run, or have had their answer, go first."""
        new = [uid for uid in uids if uid not in self._queue]
        known = [uid for uid in new if uid in self._shares or uid in self.rejected or runs_already(uid)]
        for uid in known:
            if uid not in self.rejected:
                self._admit(uid)
        for uid in known:
            self._callbacks.place(uid)
        self._queue += sorted(
            (uid for uid in new if uid not in known),
            key=lambda uid: self._desired.pods[uid].metadata.creation_timestamp or "",
        )
        self._advance()

    def termination(self, uid: str) -> TerminationRequest | None:
        """How a pod ends that may not run; None for one that may."""
        if uid not in self.rejected:
            return None
        reason, message = self.rejected[uid]
        return TerminationRequest(reason=reason, message=message, grace_period_s=0)

    def shares(self) -> list[Share]:
        """What every pod takes that is admitted and not over."""
        return list(self._shares.values())

    def others(self, uid: str) -> list[Share]:
        """What all other pods take that are admitted and not over."""
        return [share for other, share in self._shares.items() if other != uid]

    def allocated(self, pod: Pod) -> None:
        """An admitted pod takes something else from now on."""
        if pod.metadata.uid in self._shares:
            self._shares[pod.metadata.uid] = Share.of(pod)
            self._callbacks.shares_changed()

    def evicted(self, uid: str, reason: str, message: str) -> None:
        """It is ended for the node's sake and not to be run again; it takes its share until it is over."""
        self.rejected[uid] = (reason, message)

    def over(self, uid: str) -> None:
        """Nothing of the pod runs any more."""
        self._drop(uid)
        if self._making_room is not None and uid in self._making_room.victims:
            self._making_room.victims.discard(uid)
            if not self._making_room.victims:
                self._room_made()

    def left(self, uid: str) -> bool:
        """No source wants the pod any more; whether it had been turned away or evicted."""
        self._drop(uid)
        self._looking.discard(uid)
        self._looked.discard(uid)
        if uid in self._queue:
            self._queue.remove(uid)
        if self._making_room is not None and self._making_room.uid == uid:
            self._making_room = None
            self._advance()
        return self.rejected.pop(uid, None) is not None

    def keep_rejected(self, wanted: Iterable[str]) -> None:
        """Forget who was turned away and has gone since."""
        wanted = set(wanted)
        self.rejected = {uid: why for uid, why in self.rejected.items() if uid in wanted}

    # Decisions

    def go_on(self) -> None:
        """More is known of what some pods were waiting for."""
        self._advance()

    def looked_again(self, uid: str) -> None:
        """The node's labels have been read anew for the pod, or could not be: its answer is final now."""
        if uid in self._looking:
            self._looking.discard(uid)
            self._looked.add(uid)
            self._advance()

    def _next(self) -> str | None:
        """The first in the queue whose turn it can be."""
        return next((uid for uid in self._queue if uid not in self._looking and self._callbacks.may_judge(uid)), None)

    def _advance(self) -> None:
        if not self._desired.static_seen():
            return  # static pods may run here and take of the node: others must not be let in over their heads
        while self._making_room is None and (uid := self._next()) is not None:
            verdict = self._judge(self._desired.pods[uid])
            if self._may_be_old(uid, verdict):
                continue
            self._queue.remove(uid)
            self._looked.discard(uid)
            match verdict:
                case Rejection():
                    self._turn_away(uid, verdict)
                case Preempt(victims):
                    self._make_room(uid, victims)
                case _:
                    self._let_in(uid)

    def _may_be_old(self, uid: str, verdict: chain.Verdict) -> bool:
        """Labels put on the node just now may be why the pod was sent here."""
        misfit = isinstance(verdict, Rejection) and verdict.reason == chain.NODE_AFFINITY
        if not misfit or uid in self._looked:
            return False
        self._looking.add(uid)  # before it is asked for: the answer may be there at once
        if self._callbacks.look_again(uid):
            return True
        self._looking.discard(uid)
        return False

    def _judge(self, pod: Pod) -> chain.Verdict:
        if self.shutting_down:
            return Rejection(shutdown.NOT_ADMITTED, shutdown.NOT_ADMITTED_MESSAGE)
        try:
            return admission.admit(
                Share.of(self._callbacks.current(pod)), self.others(pod.metadata.uid), self.node, self.pressure
            )
        except QuantityError as error:
            return Rejection(chain.UNEXPECTED, str(error))

    def _admit(self, uid: str) -> None:
        try:
            self._shares[uid] = Share.of(self._callbacks.current(self._desired.pods[uid]))
        except QuantityError as error:
            log.warning("cannot tell what pod %s takes of the node: %s", uid, error)
        self._callbacks.shares_changed()

    def _drop(self, uid: str) -> None:
        if self._shares.pop(uid, None) is not None:
            self._callbacks.shares_changed()

    def _let_in(self, uid: str) -> None:
        self._admit(uid)
        self._callbacks.place(uid)

    def _turn_away(self, uid: str, rejection: Rejection) -> None:
        pod = self._desired.pods[uid]
        log.warning("pod %s/%s: %s: %s", pod.metadata.namespace, pod.metadata.name, rejection.reason, rejection.message)
        metrics.ADMISSION_REJECTIONS.inc(rejection.reason)
        self.rejected[uid] = (rejection.reason, rejection.status_message)
        self._callbacks.save()
        self._callbacks.events.pod(pod, "Warning", rejection.reason, rejection.message)
        self._callbacks.place(uid)

    # Preemption

    def _make_room(self, uid: str, victims: tuple[Share, ...]) -> None:
        self._making_room = Waiting(uid, {share.pod.metadata.uid for share in victims})
        for share in victims:
            self.evicted(share.pod.metadata.uid, reasons.PREEMPTING, reasons.PREEMPTED_MESSAGE)
        self._callbacks.save()  # before they end: killed now, we would start them again and end others
        wait_s = MINIMUM_WAIT_S
        for share in victims:
            meta = share.pod.metadata
            log.warning("pod %s/%s is preempted in order to admit a critical pod", meta.namespace, meta.name)
            self._callbacks.events.pod(share.pod, "Warning", reasons.PREEMPTING, reasons.PREEMPTED_MESSAGE)
            wait_s = max(wait_s, 1.5 * termination.grace_period_s(share.pod))
            self._callbacks.end(
                meta.uid, TerminationRequest(reason=reasons.PREEMPTING, message=reasons.PREEMPTED_MESSAGE)
            )
        waiting = self._making_room
        if waiting is not None:
            self._callbacks.after(wait_s, lambda: self._waited(waiting))

    def _waited(self, waiting: Waiting) -> None:
        """Long enough: as in the kubelet, the critical pod is let in beside what is left of them."""
        if self._making_room is waiting:
            log.error("timeout waiting to kill preempted pods %s", ", ".join(sorted(waiting.victims)))
            self._room_made()

    def _room_made(self) -> None:
        waiting, self._making_room = self._making_room, None
        if waiting is not None:
            self._let_in(waiting.uid)
            self._advance()
