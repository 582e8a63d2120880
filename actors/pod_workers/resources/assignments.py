"""Asks the resources actor to assign CPUs, memory and devices to new pods, and tells it which pods are there.

A pod waits if its resources may come later, as when a device plugin has not registered again. It is tried again every
few seconds, and when the resources actor tells a change. While that actor is down, the pods that need it wait for it.
Pods that ran before are asked for once more. Used in the actor's mailbox thread only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass

from actors._base import Actor
from actors._events.recorder import Recorder
from actors.pod_workers.admission import Rejection
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.admission.chain import UNEXPECTED
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.resources.allocation_manager import AllocationManager
from actors.pod_workers.resources.listed_pods import ListedPods
from actors.pod_workers.shared.managed_resources import ManagedResources
from proto.pods.pod_workers import ResourcesState
from proto.resources.resources import AdmitPod, ReleasePod, SetPods
from proto.v1 import Pod
from proto.wire.errors import ActorError, Refused

log = logging.getLogger(__name__)

ADMIT_S = 60.0
"""The actor has its own deadlines for device plugins; its death ends the ask at once."""
RETRY_S = 5.0
WAIT_S = 600.0
"""A pod whose resources the node refuses as "not yet" is rejected after this time."""
UNAVAILABLE = "the resources actor does not answer"


@dataclass
class Waiting:
    """A pod that waits for its resources."""

    message: str = ""
    since: float | None = None
    """Monotonic seconds of the first refusal; None while only the resources actor was down."""

    def is_over(self, now: float) -> bool:
        """True once the pod has waited for its resources long enough."""
        return self.since is not None and now - self.since > WAIT_S


class Assignments:
    """See the module. Keyed by pod UID."""

    def __init__(
        self, actor: Actor, events: Recorder, desired: Desired, queue: AdmissionQueue, allocations: AllocationManager
    ) -> None:
        self.managed = ManagedResources(actor.settings)
        self._actor = actor
        self._peer = actor.peer("resources")
        self.listed = ListedPods(self._peer, desired, lambda tell: actor.post(tell, name="listed_pods"))
        self._events = events
        self._desired = desired
        self._admission_queue = queue
        self._current = allocations.current
        self._under_way: dict[str, object] = {}
        self._waiting: dict[str, Waiting] = {}
        self._tracked: dict[str, Pod] = {}
        """Pods that the resources actor knows: asked for, or started."""
        self._retrying = False

    def waiting(self) -> dict[str, str]:
        """UID of each pod that waits to what it waits for."""
        return {uid: one.message for uid, one in self._waiting.items()}

    # Admission

    def assign(self, uid: str, *, trial: bool = False) -> bool:
        """Ask for the pod's resources. False: it needs none. `trial`: see AdmitPod."""
        pod = self._current(self._desired.pods[uid])
        if pod.metadata.deletion_timestamp is not None or not self.managed.concerns(pod):
            self._waiting.pop(uid, None)
            return False
        self._under_way[uid] = ask = object()
        self._tracked[uid] = pod
        self.listed.started(uid)
        self.listed.tell()  # before the request: plugins may ask for the pod meanwhile
        self._actor.spawn(self._ask(AdmitPod(pod=pod, trial=trial), ask), "assign_resources")
        return True

    async def _ask(self, request: AdmitPod, ask: object) -> None:
        pod, problem = request.pod, None
        uid = pod.metadata.uid
        try:
            await self._peer.ask(request, ADMIT_S)
        except ActorError as error:
            problem = error
        if self._under_way.get(uid) is not ask:
            return  # the pod is gone, or was asked for again
        del self._under_way[uid]
        waits = self._waiting.pop(uid, Waiting())
        match problem:
            case None:
                self._admission_queue.assigned(uid)
            case Refused(retry=False):
                self._admission_queue.not_assigned(uid, Rejection(problem.reason, problem.message))
            case Refused() if waits.is_over(time.monotonic()):
                message = f"{problem.message}; waited {WAIT_S:.0f} s for it"
                self._admission_queue.not_assigned(uid, Rejection(UNEXPECTED, message))
            case _:
                self._wait(pod, waits, problem)

    def _wait(self, pod: Pod, waits: Waiting, problem: ActorError) -> None:
        """Let the pod wait, with an event for each new message of the resources actor."""
        uid, now = pod.metadata.uid, time.monotonic()
        lasting = waits.since is not None and now - waits.since >= RETRY_S
        if isinstance(problem, Refused):
            if waits.message != problem.message:
                self._events.pod(pod, "Warning", problem.reason, problem.message)
            waits.message = problem.message
            waits.since = now if waits.since is None else waits.since
        else:
            log.info("cannot ask for the resources of pod %s: %s; trying again", uid, problem)
            waits.message = UNAVAILABLE
        self._waiting[uid] = waits
        self._admission_queue.assigned_later(uid, lasting=lasting)
        self._retry_later()

    def _retry_later(self) -> None:
        if not self._retrying:
            self._retrying = True
            self._actor.after(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        self.try_waiting()

    def try_waiting(self) -> None:
        """Ask again for every pod that waits."""
        for uid in list(self._waiting):
            if uid not in self._under_way:
                self._admission_queue.try_assigning(uid)

    def state_changed(self, state: ResourcesState) -> None:
        """From resources: what it assigns now."""
        self.managed.state = state
        self.try_waiting()

    # Pods

    def pods_updated(self, uids: Collection[str]) -> None:
        """A waiting pod that is deleted needs nothing any more."""
        if not self._waiting.keys().isdisjoint(uids):
            self.try_waiting()

    def pod_started(self, pod: Pod, *, active: bool = True) -> None:
        """A worker starts or continues the pod with these allocated resources. Not `active`: it is over already."""
        uid = pod.metadata.uid
        if active:
            self.listed.started(uid)
        unknown = uid not in self._desired.pods and self.managed.assigns()  # an orphan, whose spec is lost
        ran_before = active and not unknown and uid not in self._tracked
        if (unknown or self.managed.tracks(pod)) and self._tracked.get(uid) is not pod:
            self._tracked[uid] = pod
            self._peer.tell(SetPods(pods=(pod,)))
        if ran_before and self.managed.is_pinned(pod):
            self._actor.spawn(self._readmit(pod), "assign_resources_again")

    async def _readmit(self, pod: Pod) -> None:
        """A pod that ran before may lack CPUs or memory of its own, as after a change of policies.

        The kubelet admits it anew, and fails it if there are too few. Here it goes on without.
        """
        uid = pod.metadata.uid
        while uid in self._tracked:
            try:
                await self._peer.ask(AdmitPod(pod=pod, running=True), ADMIT_S)
                return
            except ActorError as error:
                if isinstance(error, Refused) and not error.retry:
                    log.warning("pod %s runs without CPUs or memory of its own: %s", uid, error.message)
                    return
            await self._actor.sleep(RETRY_S)

    def pod_gone(self, uid: str) -> None:
        """No process of the pod runs any more, or it has not begun and is rejected or unwanted."""
        self._under_way.pop(uid, None)
        self._waiting.pop(uid, None)
        self.listed.ended(uid)
        if self._tracked.pop(uid, None) is not None:
            self._peer.tell(ReleasePod(pod_uid=uid))

    def resend(self, *, full: bool) -> None:
        """Send all pods. `full`: no other pod of the node has processes."""
        self._peer.tell(SetPods(pods=tuple(self._tracked.values()), full=full))
        self.listed.resend()
