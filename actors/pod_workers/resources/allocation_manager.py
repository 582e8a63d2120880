"""Allocates resources to the actor's pods, saves the records, and tells workers of granted and refused resizes.

The allocator decides; this module passes its answers to workers, timers and files. Used in the actor's own thread.
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
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.model.termination_request import TerminationRequest
from actors.pod_workers.resources.allocator import RETRY_S, Allocator
from actors.pod_workers.resources.resize_conditions import Pending
from actors.pod_workers.resources.resizing import ManagerPolicies
from actors.pod_workers.shared.resource_state import ACTUATED_FILE, ALLOCATED_FILE, ResourceState
from proto.agent.settings import Settings
from proto.v1 import Pod
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

SAVE_DEADLINE_S = 10.0
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
        self._queue = admission_queue
        self._workers = workers
        self._is_complete = is_complete
        self.events = events
        self.allocated = self._state(ALLOCATED_FILE)
        self.actuated = self._state(ACTUATED_FILE)
        swap, policies = swap_rules(actor.settings.memory_swap_behavior), _policies(actor.settings)
        self.allocator = Allocator(self.allocated, events, swap, policies)
        self._saving = False
        self._saved_at = 0.0
        self._timer = False
        self._unsaved: dict[str, object] = {}
        """By UID: the grant that is not on disk yet."""

    # Pods

    def current(self, pod: Pod) -> Pod:
        """The pod with its allocated resources."""
        return self.allocator.current(pod)

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

    def retry(self, trigger: str) -> None:
        """Grant the resizes that fit now, once every source has reported its pods. `trigger`: the kubelet's word."""
        if not self.allocator.queue or not self._is_complete():
            return
        running = [uid for uid, worker in self._workers.items() if worker.termination is None]
        changed = self.allocator.retry(self._desired.pods, running, self._queue, trigger)
        granted = [uid for uid in changed if uid not in self.allocator.pending]
        if granted:
            grant = object()
            self._unsaved.update(dict.fromkeys(granted, grant))
            self._actor.spawn(self._tell_once_saved(granted, grant), "tell_granted")
        for uid in changed:
            self._tell(uid)
        if self.allocator.queue and not self._timer:
            self._timer = True
            self._actor.after(RETRY_S, self._retry_later)

    async def _tell_once_saved(self, uids: list[str], grant: object) -> None:
        """Save a grant before its worker acts on it.

        After a kill, a container that was restarted for an unsaved grant would be restarted again with the old amounts.
        """
        await self._write(self.allocated)
        for uid in [uid for uid in uids if self._unsaved.get(uid) is grant]:
            del self._unsaved[uid]
            if uid in self._workers and uid in self._desired.pods:
                self._tell(uid)

    def _retry_later(self) -> None:
        self._timer = False
        self.retry("periodic_retry")

    def finished(self, uid: str) -> None:
        """Free the resources of a pod of which nothing is left."""
        self.allocator.forget(uid)
        self.actuated.remove(uid)
        self.retry("pods_removed")

    def keep(self, uids: set[str]) -> None:
        """Forget the records of all other pods."""
        self.allocated.keep(uids)
        self.actuated.keep(uids)

    # Files

    def _state(self, name: str) -> ResourceState:
        path = os.path.join(self._actor.settings.root_dir, name)
        state = ResourceState(path, lambda: self._actor.post(self._save_soon))
        state.load()
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
            await self._write(state)

    async def _write(self, state: ResourceState) -> None:
        try:
            await self._actor.blocking(SAVE_DEADLINE_S, state.save)
        except (OSError, AskTimeout) as error:
            log.error("cannot write %s: %s", state.path, error)


def _policies(settings: Settings) -> ManagerPolicies:
    return ManagerPolicies(
        cpus=settings.cpu_manager_policy == "static", memory=settings.memory_manager_policy == "Static"
    )
