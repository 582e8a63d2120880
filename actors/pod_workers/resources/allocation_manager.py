"""Carries out the allocator's decisions: saves the records, sets timers, and tells workers of grants and refusals.

Used in the actor's own thread.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from actors._base import Actor
from actors._cgroup.hierarchy import swap_rules
from actors._events.recorder import Recorder
from actors._host.files.checkpoint import Writes
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.model.allocation import PodResourceInfo
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.model.termination_request import TerminationRequest
from actors.pod_workers.resources.allocator import RETRY_S, Allocator, ResizeTrigger
from actors.pod_workers.resources.resize_conditions import Pending
from actors.pod_workers.resources.resizing import ManagerPolicies
from actors.pod_workers.shared.resource_state import ACTUATED_FILE, ALLOCATED_FILE, ResourceState
from proto.agent.settings import Settings
from proto.v1 import Pod

log = logging.getLogger(__name__)

SAVE_DEADLINE_S = 10.0
LOSS = "a restart forgets the newest resources of pods"
SAVE_SOON_S = 0.02
"""Delay of the first write after a quiet time, to include changes that come together."""
SAVE_PERIOD_S = 1.0
"""At most one write in this time: each has the records of all pods. A lost record restarts no container."""


class ResizableWorker(Protocol):
    """The part of a pod worker that is used here."""

    @property
    def termination(self) -> TerminationRequest | None:
        """Why the pod ends; None while it is to run."""

    def update(self, pod: Pod, desired: Pod, pending: Pending | None = None) -> None:
        """Give the worker the allocated and the desired pod, and why they differ."""


class AllocationManager:
    """Reads the desired pods, the admission queue and the workers, which the actor owns."""

    def __init__(
        self,
        actor: Actor,
        events: Recorder,
        *,
        desired: Desired,
        admission_queue: AdmissionQueue,
        workers: Mapping[str, ResizableWorker],
        is_complete: Callable[[], bool],
    ) -> None:
        """`workers`: by pod UID. `is_complete`: every source and the runtime have reported their pods."""
        self._actor = actor
        self._desired = desired
        self._admission_queue = admission_queue
        self._workers = workers
        self._is_complete = is_complete
        self.events = events
        self._writes: dict[str, Writes] = {}
        """By path of the file."""
        self.allocated = self._state(ALLOCATED_FILE)
        self.actuated = self._state(ACTUATED_FILE, lambda uid: actor.post(self._resize_noted, uid))
        swap, policies = swap_rules(actor.settings.memory_swap_behavior), _policies(actor.settings)
        self.allocator = Allocator(self.allocated, events, swap, policies)
        self._saving = False
        self._saved_at = 0.0
        self._retry_is_planned = self._retry_is_posted = False
        self._unsaved: dict[str, object] = {}
        """By UID: the grant that is not on disk yet."""

    # Pods

    def current(self, pod: Pod) -> Pod:
        """The pod with its allocated resources."""
        return self.allocator.current(pod)

    def still_held(self, uid: str) -> PodResourceInfo | None:
        """The resources that containers of this UID may still have; None when they have the allocated ones."""
        return self.actuated.held(uid, self.allocated.get(uid))

    def admitted(self, pod: Pod) -> None:
        """A worker starts for the pod: allocate the resources of `pod`."""
        self.allocator.admitted(pod)
        self.allocator.enqueue(self._desired.pods.get(pod.metadata.uid, pod))

    def update(self, uid: str) -> None:
        """The pod's object changed: give its worker the new object with the allocated resources."""
        self.allocator.enqueue(self._desired.pods[uid])
        self._tell(uid)

    def _tell(self, uid: str) -> None:
        if uid in self._unsaved:
            return  # `_tell_once_saved` does
        desired = self._desired.pods[uid]
        self._workers[uid].update(self.current(desired), desired, self.allocator.pending.get(uid))

    def retry_pending_resizes(self, trigger: ResizeTrigger) -> None:
        """Grant the resizes that fit now, once every source has reported its pods.

        During a preemption they wait, since they would take the room that is made.
        """
        if not self.allocator.pending_resizes or not self._is_complete() or self._admission_queue.is_preempting:
            return
        running = [uid for uid in self.allocator.pending_resizes if self._runs(uid)]
        changed = self.allocator.retry_pending_resizes(self._desired.pods, running, self._admission_queue, trigger)
        granted = [uid for uid in changed if uid not in self.allocator.pending]
        if granted:
            grant = object()
            self._unsaved.update(dict.fromkeys(granted, grant))
            self._actor.spawn(self._tell_once_saved(granted, grant), "tell_granted")
        for uid in changed:
            self._tell(uid)
        if self.allocator.pending_resizes and not self._retry_is_planned:
            self._retry_is_planned = True
            self._actor.after(RETRY_S, self._retry_later)
        if self.allocator.preempts is not None:  # last: this method may be called within it
            uid, verdict = self.allocator.preempts
            self._admission_queue.preempt(uid, verdict, resizes=True)

    def _runs(self, uid: str) -> bool:
        """Return False for a pod that ends or has ended: it needs no room. Its worker may not have looked yet."""
        worker, pod = self._workers.get(uid), self._desired.pods.get(uid)
        if worker is None or worker.termination is not None or pod is None:
            return False
        return pod.metadata.deletion_timestamp is None and self._admission_queue.has_share(uid)

    async def _tell_once_saved(self, uids: list[str], grant: object) -> None:
        """Save a grant before its worker acts on it.

        After a kill, a container that was restarted for an unsaved grant would be restarted again with the old amounts.
        """
        await self._writes[self.allocated.path].run(self.allocated.save)
        for uid in [uid for uid in uids if self._unsaved.get(uid) is grant]:
            del self._unsaved[uid]
            if uid in self._workers and uid in self._desired.pods:
                self._tell(uid)

    def _resize_noted(self, uid: str) -> None:
        """A worker has carried out a resize, or a part of it: the room that this frees goes to deferred resizes.

        After all notes that have come meanwhile: each decision may give every resize that waits another message.
        """
        pod = self._desired.pods.get(uid)
        if pod is not None and self._admission_queue.resized(self.current(pod)) and not self._retry_is_posted:
            self._retry_is_posted = True
            self._actor.post(self._retry_freed)

    def _retry_freed(self) -> None:
        self._retry_is_posted = False
        self.retry_pending_resizes("pod_resized")

    def _retry_later(self) -> None:
        self._retry_is_planned = False
        self.retry_pending_resizes("periodic_retry")

    def finished(self, uid: str) -> None:
        """Free the resources of a pod of which nothing is left."""
        self.allocator.forget(uid)
        self.actuated.remove(uid)
        self.retry_pending_resizes("pods_removed")

    def keep(self, uids: set[str]) -> None:
        """Forget the records of all other pods."""
        self.allocated.keep(uids)
        self.actuated.keep(uids)

    # Files

    def _state(self, name: str, on_resize: Callable[[str], None] = lambda uid: None) -> ResourceState:  # noqa: ARG005
        path = os.path.join(self._actor.settings.root_dir, name)
        state = ResourceState(path, lambda: self._actor.post(self._save_soon), on_resize)
        state.load()
        self._writes[path] = Writes(self._actor, path, LOSS, self._save_soon, deadline_s=SAVE_DEADLINE_S)
        return state

    def _save_soon(self) -> None:
        if not self._saving:
            self._saving = True
            wait_s = max(SAVE_SOON_S, self._saved_at + SAVE_PERIOD_S - time.monotonic())
            self._actor.after(wait_s, lambda: self._actor.spawn(self._save(), "save_resources"))

    async def _save(self) -> None:
        """Allocated resources first, since the actuated ones follow from them."""
        self._saving = False
        self._saved_at = time.monotonic()
        for state in (self.allocated, self.actuated):
            await self._writes[state.path].run(state.save)


def _policies(settings: Settings) -> ManagerPolicies:
    return ManagerPolicies(
        cpus=settings.cpu_manager_policy == "static", memory=settings.memory_manager_policy == "Static"
    )
