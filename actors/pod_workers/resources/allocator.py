"""Who has been granted which resources, and which pods wait for more.

The kubelet's allocation manager (pkg/kubelet/allocation): the record of what is allocated, and the queue of pods whose
spec asks for something else. Used in the actor's own thread. The decision is resizing.py's.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from actors._cgroup.quantities.swap import SwapRules
from actors._events.recorder import Recorder
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.model.allocation import equal, resources_of, with_resources
from actors.pod_workers.resources import resize_events
from actors.pod_workers.resources.resize_conditions import Pending
from actors.pod_workers.resources.resizing import DEFERRED, INFEASIBLE, Refusal, ResizeRequest, decide, in_order
from actors.pod_workers.shared.resource_state import ResourceState
from proto.v1 import Pod
from proto.v1.scalars.quantity import QuantityError

RETRY_S = 180.0
"""A deferred resize is looked at again when a pod goes, shrinks or comes, and after this long all the same."""


@dataclass
class Allocator:
    """See the module."""

    allocated: ResourceState
    events: Recorder
    swap: SwapRules
    pending: dict[str, Pending] = field(default_factory=dict)
    """By UID: why a pod has not got what it asks for."""
    queue: set[str] = field(default_factory=set)
    """UIDs of those to decide on: new ones, and the deferred."""

    def current(self, pod: Pod) -> Pod:
        """The pod with the resources it has been granted; as it is when it has none yet."""
        return with_resources(pod, self.allocated.get(pod.metadata.uid))

    def admitted(self, pod: Pod) -> None:
        """The pod runs with the resources it has here."""
        if self.allocated.get(pod.metadata.uid) is None:
            self.allocated.set(pod.metadata.uid, resources_of(pod))

    def look(self, desired: Pod) -> None:
        """Queue the pod if it asks for other resources than it has, and take it off the queue if not."""
        uid = desired.metadata.uid
        granted = self.allocated.get(uid)
        if granted is None or equal(granted, resources_of(desired)):
            self.pending.pop(uid, None)
            self.queue.discard(uid)
        else:
            self.queue.add(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self.pending.pop(uid, None)
        self.queue.discard(uid)
        self.allocated.remove(uid)

    def retry(self, desired: Mapping[str, Pod], running: Collection[str], admission_queue: AdmissionQueue) -> list[str]:
        """Decide on what waits, in order; UIDs of the pods whose allocation or condition has changed.

        `running`: UIDs of the pods that are to go on. `entrance` knows what the others have and is told of a grant.
        """
        self.queue.intersection_update(desired, running)
        requests = [ResizeRequest(desired[uid], self.current(desired[uid]), self._since(uid)) for uid in self.queue]
        changed = []
        for request in in_order(requests):
            uid = request.desired.metadata.uid
            refusal = self._decide(request, admission_queue)
            if refusal is None:
                self._grant(request.desired)
                admission_queue.allocated(request.desired)
                changed.append(uid)
                continue
            if refusal.reason != DEFERRED:
                self.queue.discard(uid)
            since = request.since or time.time()
            new = Pending(refusal.reason, refusal.message, request.desired.metadata.generation, since)
            if new != self.pending.get(uid):
                self._refuse(request.desired, new)
                changed.append(uid)
        return changed

    def _decide(self, request: ResizeRequest, admission_queue: AdmissionQueue) -> Refusal | None:
        others = admission_queue.others(request.desired.metadata.uid)
        try:
            return decide(request, others, admission_queue.node.allocatable, self.swap)
        except QuantityError as error:
            return Refusal(INFEASIBLE, str(error))

    def _since(self, uid: str) -> float:
        return self.pending[uid].since if uid in self.pending else 0.0

    def _grant(self, pod: Pod) -> None:
        self.queue.discard(pod.metadata.uid)
        self.pending.pop(pod.metadata.uid, None)
        self.allocated.set(pod.metadata.uid, resources_of(pod))
        self.events.pod(pod, "Normal", "ResizeStarted", resize_events.started(pod))

    def _refuse(self, pod: Pod, pending: Pending) -> None:
        self.pending[pod.metadata.uid] = pending
        message = resize_events.pending(pod, pending.reason, pending.message)
        self.events.pod(pod, "Warning", f"Resize{pending.reason}", message)
