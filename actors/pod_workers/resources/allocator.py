"""Records the resources allocated to each pod, and queues the pods whose spec asks for others.

The kubelet's allocation manager (pkg/kubelet/allocation). Used in the actor's own thread. `resizing` decides on one
resize.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from actors._cgroup.quantities.swap import SwapRules
from actors._events.recorder import Recorder
from actors._metrics import kubelet as metrics
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.model.allocation import equal, resources_of, with_resources
from actors.pod_workers.resources import resize_events
from actors.pod_workers.resources.resize_conditions import Pending
from actors.pod_workers.resources.resizing import (
    DEFERRED,
    INFEASIBLE,
    NO_POLICIES,
    ManagerPolicies,
    Refusal,
    ResizeRequest,
    decide,
    in_order,
)
from actors.pod_workers.shared.resource_state import ResourceState
from proto.v1 import Pod
from proto.v1.scalars.quantity import QuantityError

RETRY_S = 180.0
"""A deferred resize is decided on again when a pod comes, goes or shrinks, and at the latest after this time."""


@dataclass
class Allocator:
    """The allocations of all pods."""

    allocated: ResourceState
    events: Recorder
    swap: SwapRules
    policies: ManagerPolicies = NO_POLICIES
    pending: dict[str, Pending] = field(default_factory=dict)
    """By UID: why a pod does not have the resources it asks for."""
    queue: set[str] = field(default_factory=set)
    """UIDs of pods with a new or a deferred resize."""

    def current(self, pod: Pod) -> Pod:
        """The pod with its allocated resources; unchanged while it has none."""
        return with_resources(pod, self.allocated.get(pod.metadata.uid))

    def admitted(self, pod: Pod) -> None:
        """Allocate the resources of `pod`, unless it has some from before a restart."""
        if self.allocated.get(pod.metadata.uid) is None:
            self.allocated.set(pod.metadata.uid, resources_of(pod))

    def enqueue(self, desired: Pod) -> None:
        """Queue the pod if it asks for other resources than it has; else take it off the queue."""
        uid = desired.metadata.uid
        granted = self.allocated.get(uid)
        if granted is None or equal(granted, resources_of(desired)):
            self.pending.pop(uid, None)
            self.queue.discard(uid)
        else:
            self.queue.add(uid)

    def forget(self, uid: str) -> None:
        """Drop all records of a pod that is gone."""
        self.pending.pop(uid, None)
        self.queue.discard(uid)
        self.allocated.remove(uid)

    def retry(
        self, desired: Mapping[str, Pod], running: Collection[str], admission_queue: AdmissionQueue, trigger: str
    ) -> list[str]:
        """Decide on the queued resizes in order. Returns the UIDs whose allocation or condition has changed.

        `running`: UIDs of pods that do not end. `admission_queue` has the other pods' shares and is told of grants.
        `trigger`: the kubelet's word for the occasion.
        """
        self.queue.intersection_update(desired, running)
        requests = [ResizeRequest(desired[uid], self.current(desired[uid]), self._since(uid)) for uid in self.queue]
        changed = []
        for request in in_order(requests):
            uid = request.desired.metadata.uid
            refusal = self._decide(request, admission_queue)
            if refusal is None:
                if uid in self.pending and self.pending[uid].reason == DEFERRED:
                    metrics.RESIZES_ACCEPTED_LATE.inc(trigger)
                self._grant(request.desired)
                admission_queue.resized(request.desired)
                changed.append(uid)
                continue
            if refusal.reason != DEFERRED:
                metrics.RESIZES_INFEASIBLE.inc(refusal.detail)
                self.queue.discard(uid)
            since = request.since or time.time()
            new = Pending(refusal.reason, refusal.message, request.desired.metadata.generation, since)
            if new != self.pending.get(uid):
                self._refuse(request.desired, new)
                changed.append(uid)
        return changed

    def _decide(self, request: ResizeRequest, admission_queue: AdmissionQueue) -> Refusal | None:
        others = admission_queue.other_shares(request.desired.metadata.uid)
        try:
            return decide(request, others, admission_queue.node.allocatable, self.swap, self.policies)
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
