"""Decides which pending resizes are granted, and records the resources allocated to each pod.

The decisions of the kubelet's allocation manager (pkg/kubelet/allocation), without files, timers and workers: those are
in `allocation_manager`. Used in the actor's own thread. `resizing` decides on one resize.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from actors._cgroup.quantities.swap import SwapRules
from actors._events.recorder import Recorder
from actors._metrics import kubelet as metrics
from actors.pod_workers.admission import Preempt
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.model.allocation import equal, resources_of, with_resources
from actors.pod_workers.resources import resize_events
from actors.pod_workers.resources.resize_conditions import Pending
from actors.pod_workers.resources.resizing import (
    DEFERRED,
    INFEASIBLE,
    NO_POLICIES,
    ManagerPolicies,
    NodeState,
    Refusal,
    ResizeRequest,
    decide,
    in_order,
)
from actors.pod_workers.shared.resource_state import ResourceState
from proto.v1 import Pod
from proto.v1.scalars.quantity import QuantityError

ResizeTrigger = Literal["pods_added", "pod_updated", "pods_removed", "pod_resized", "periodic_retry"]
"""Why pending resizes are decided on again: label `retry_trigger` of the metric of resizes granted late."""
RETRY_S = 180.0
"""A deferred resize is decided on again when a pod comes, goes or has shrunk, and at the latest after this time."""


@dataclass
class Allocator:
    """The allocations of all pods."""

    allocated: ResourceState
    events: Recorder
    swap: SwapRules
    policies: ManagerPolicies = NO_POLICIES
    pending: dict[str, Pending] = field(default_factory=dict)
    """By UID: why a pod does not have the resources it asks for."""
    pending_resizes: set[str] = field(default_factory=set)
    """UIDs of pods with a new or a deferred resize."""
    preempts: tuple[str, Preempt] | None = None
    """After `retry_pending_resizes`: the UID of a critical pod that fits once these pods have ended.

    The resizes after it wait, too.
    """

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
            self.pending_resizes.discard(uid)
        else:
            self.pending_resizes.add(uid)

    def forget(self, uid: str) -> None:
        """Drop all records of a pod that is gone."""
        self.pending.pop(uid, None)
        self.pending_resizes.discard(uid)
        self.allocated.remove(uid)

    def retry_pending_resizes(
        self,
        desired: Mapping[str, Pod],
        running: Collection[str],
        admission_queue: AdmissionQueue,
        trigger: ResizeTrigger,
    ) -> list[str]:
        """Decide on the queued resizes in order. Returns the UIDs whose allocation or condition has changed.

        `running`: UIDs of pods that do not end. `admission_queue` has the other pods' shares and is told of grants.
        A pod without running containers gives its room back with the grant, so that resizes before it may fit: all are
        decided on again. Each such pass takes a pod off the queue.
        """
        self.pending_resizes.intersection_update(desired, running)
        changed: dict[str, None] = {}
        self.preempts, freed = None, True
        while freed and self.pending_resizes:
            freed = False
            requests = [
                ResizeRequest(desired[uid], self.current(desired[uid]), self._since(uid))
                for uid in self.pending_resizes
            ]
            for request in in_order(requests):
                uid, refusal = request.desired.metadata.uid, self._decide(request, admission_queue)
                if isinstance(refusal, Preempt):
                    self.preempts = uid, refusal
                    return list(changed)
                if refusal is None:
                    freed = self._grant(request.desired, admission_queue, trigger) or freed
                if refusal is None or self._refuse(request, refusal):
                    changed[uid] = None
            trigger = "pod_resized"
        return list(changed)

    def _decide(self, request: ResizeRequest, admission_queue: AdmissionQueue) -> Refusal | Preempt | None:
        uid = request.desired.metadata.uid
        node = NodeState(admission_queue.node, admission_queue.pressure, admission_queue.shutting_down)
        try:
            verdict = decide(request, admission_queue.other_shares(uid), node, self.swap, self.policies)
        except QuantityError as error:
            return Refusal(INFEASIBLE, str(error))
        return None if isinstance(verdict, Preempt) and admission_queue.has_room(uid) else verdict

    def _since(self, uid: str) -> float:
        return self.pending[uid].since if uid in self.pending else 0.0

    def _grant(self, pod: Pod, admission_queue: AdmissionQueue, trigger: ResizeTrigger) -> bool:
        """Allocate the resources. True if other pods have more room at once."""
        uid = pod.metadata.uid
        before = self.pending.pop(uid, None)
        if before is not None and before.reason == DEFERRED:
            metrics.RESIZES_ACCEPTED_LATE.inc(trigger)
        self.pending_resizes.discard(uid)
        self.allocated.set(uid, resources_of(pod))
        self.events.pod(pod, "Normal", "ResizeStarted", resize_events.started(pod))
        return admission_queue.resized(pod)

    def _refuse(self, request: ResizeRequest, refusal: Refusal) -> bool:
        """Return True if the pod's condition changes."""
        pod = request.desired
        uid = pod.metadata.uid
        if refusal.reason != DEFERRED:
            metrics.RESIZES_INFEASIBLE.inc(refusal.detail)
            self.pending_resizes.discard(uid)
        new = Pending(refusal.reason, refusal.message, pod.metadata.generation, request.since or time.time())
        if new == self.pending.get(uid):
            return False
        self.pending[uid] = new
        message = resize_events.pending(pod, new.reason, new.message)
        self.events.pod(pod, "Warning", f"Resize{new.reason}", message)
        return True
