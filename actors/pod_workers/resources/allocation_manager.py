"""The resources of the actor's pods: what is kept of them, and who is told when a resize is granted or refused.

The part of the pod_workers actor that turns the allocator's answers into messages to workers, timers and files. Used in
the actor's own thread.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from actors._cgroup.hierarchy import swap_rules
from actors._events.recorder import Recorder
from actors.pod_workers.resources.allocator import RETRY_S, Allocator
from actors.pod_workers.shared.resource_state import ACTUATED_FILE, ALLOCATED_FILE, ResourceState
from proto.v1 import Pod
from proto.wire.errors import AskTimeout

if TYPE_CHECKING:
    from actors.pod_workers.actor import PodWorkers

log = logging.getLogger(__name__)

SAVE_DEADLINE_S = 10.0
SAVE_DELAY_S = 0.02
"""One write for all changes of this time."""


class AllocationManager:
    """See the module."""

    def __init__(self, actor: PodWorkers, events: Recorder) -> None:
        self._actor = actor
        self.events = events
        self.allocated = self._state(ALLOCATED_FILE)
        self.actuated = self._state(ACTUATED_FILE)
        self.allocator = Allocator(self.allocated, events, swap_rules(actor.settings.memory_swap_behavior))
        self._saving = False
        self._timer = False
        self._unkept: dict[str, object] = {}
        """By UID: the grant that is not on disk yet."""

    # Pods

    def current(self, pod: Pod) -> Pod:
        """The pod with the resources it has been granted."""
        return self.allocator.current(pod)

    def admitted(self, pod: Pod) -> None:
        """A worker starts for the pod, with the resources it has here."""
        self.allocator.admitted(pod)
        self.allocator.look(self._actor.desired.pods.get(pod.metadata.uid, pod))

    def update(self, uid: str) -> None:
        """The pod's object changed: its worker goes by the resources it has been granted."""
        self.allocator.look(self._actor.desired.pods[uid])
        self._tell(uid)

    def _tell(self, uid: str) -> None:
        if uid in self._unkept:
            return  # it is told then
        desired = self._actor.desired.pods[uid]
        self._actor.workers[uid].update(self.current(desired), desired, self.allocator.pending.get(uid))

    def retry(self) -> None:
        """Grant what can be granted now, once every source has said what runs."""
        if not self.allocator.queue or not self._actor.is_complete():
            return
        running = [uid for uid, worker in self._actor.workers.items() if worker.termination is None]
        changed = self.allocator.retry(self._actor.desired.pods, running, self._actor.admission_queue)
        granted = [uid for uid in changed if uid not in self.allocator.pending]
        if granted:
            grant = object()
            self._unkept.update(dict.fromkeys(granted, grant))
            self._actor.spawn(self._tell_once_kept(granted, grant), "tell_granted")
        for uid in changed:
            self._tell(uid)
        if self.allocator.queue and not self._timer:
            self._timer = True
            self._actor.after(RETRY_S, self._retry_later)

    async def _tell_once_kept(self, uids: list[str], grant: object) -> None:
        """A worker acts on a grant that its next life knows of, too: else a container that is restarted for it would
        come up with what it had, and be restarted again."""
        await self._write(self.allocated)
        for uid in [uid for uid in uids if self._unkept.get(uid) is grant]:
            del self._unkept[uid]
            if uid in self._actor.workers and uid in self._actor.desired.pods:
                self._tell(uid)

    def _retry_later(self) -> None:
        self._timer = False
        self.retry()

    def finished(self, uid: str) -> None:
        """Nothing of the pod is left: what it had is free."""
        self.allocator.forget(uid)
        self.actuated.remove(uid)
        self.retry()

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
            self._actor.after(SAVE_DELAY_S, lambda: self._actor.spawn(self._save(), "save_resources"))

    async def _save(self) -> None:
        """What is allocated first: what is actuated follows from it."""
        self._saving = False
        for state in (self.allocated, self.actuated):
            await self._write(state)

    async def _write(self, state: ResourceState) -> None:
        try:
            await self._actor.blocking(SAVE_DEADLINE_S, state.save)
        except (OSError, AskTimeout) as error:
            log.error("cannot write %s: %s", state.path, error)
