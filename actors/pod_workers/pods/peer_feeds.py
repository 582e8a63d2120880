"""Sends other actors all pods again, when one of them restarts and once the pods are complete after our own start.

Before the pods are complete, a message has those known so far. A complete one is marked `full`: the receiver then drops
all other pods.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from actors._base import Actor
from actors._host.node.shutdown import ended_by_shutdown
from actors.pod_workers.admission.admission_queue import AdmissionQueue
from actors.pod_workers.checkpoint import Checkpoint
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.resources.assignments import Assignments
from actors.pod_workers.shared.worker_context import WorkerContext
from actors.pod_workers.worker import PodWorker
from proto.node.image_pull import KeepPulls
from proto.pods.status import ListPods, RemovePod
from proto.v1 import PodStatus
from proto.wire.errors import ActorDead, ActorError

log = logging.getLogger(__name__)

FED = ("status", "probe", "pleg", "objects")
"""Peers that are sent all pods again when they restart."""
STATUSES_S = 5.0
"""Longest wait of a start for the published statuses, which have the restart counts of containers that the runtime has
lost. The actor status answers once it has read its checkpoint."""
STATUSES_AGAIN_S = 0.05
"""Pause before a status actor that has ended is asked again."""


class PeerFeeds:
    """Used in the actor's mailbox thread. Reads the desired pods, the workers and the admission queue."""

    def __init__(
        self,
        actor: Actor,
        context: WorkerContext,
        checkpoint: Checkpoint,
        desired: Desired,
        workers: Mapping[str, PodWorker],
        admission_queue: AdmissionQueue,
        assignments: Assignments,
        is_complete: Callable[[], bool],
    ) -> None:
        """`workers`: by pod UID. `is_complete`: every source and the runtime have reported their pods."""
        self._actor = actor
        self._context = context
        self._checkpoint = checkpoint
        self._desired = desired
        self._workers = workers
        self._admission_queue = admission_queue
        self._assignments = assignments
        self._is_complete = is_complete
        self.full = False
        """The peers have been sent the whole state."""

    async def published_statuses(self) -> dict[str, PodStatus]:
        """The published statuses by pod UID; empty when the actor status does not answer within STATUSES_S.

        It is asked again when it restarts meanwhile.
        """
        deadline = time.monotonic() + STATUSES_S
        while (left_s := deadline - time.monotonic()) > 0:
            self._remove_old_ends()
            try:
                pods = (await self._actor.peer("status").ask(ListPods(), left_s)).pods
            except ActorDead:
                await self._actor.sleep(STATUSES_AGAIN_S)
            except ActorError as error:
                log.warning("cannot read published statuses: %s; lost containers have restart count 0", error)
                break
            else:
                return {one.metadata.uid: one.status for one in pods if one.status and not ended_by_shutdown(one)}
        return {}

    def peer_started(self, name: str) -> None:
        """Send the actor `name`, which has restarted, what it needs of the pods: all of them, or those known so far."""
        if name == "status":
            self._remove_old_ends()
        if name in FED:
            self._context.published.resend(name, full=self.full)
        if name == "resources":
            self._assignments.resend(full=self.full)
        if name == "image_pull" and self.full:
            self._keep_pulls()
        if name == "volume":
            for worker in self._workers.values():
                if worker.pod.spec.volumes and worker.stage == "sync":
                    worker.volumes_changed()  # a restarted volume actor has to learn the volumes' content

    def check_complete(self) -> None:
        """Once every wanted pod is published, send the peers all of them, so that they drop pods that are gone."""
        if self.full or not self._is_complete():
            return
        if all(uid in self._context.published.pods for uid in self._workers):
            self.full = True
            for name in FED:
                self._context.published.resend(name, full=True)
            self._assignments.resend(full=True)
            self._keep_pulls()
            self._checkpoint.settled()

    def _remove_old_ends(self) -> None:
        """Have status drop the final statuses of pods that have begun again: its checkpoint may have them."""
        for uid, (reason, message) in self._admission_queue.old_ends().items():
            self._actor.peer("status").tell(RemovePod(pod_uid=uid, reason=reason, message=message))

    def _keep_pulls(self) -> None:
        """Withdraw the pulls of pods that are gone or end. An earlier incarnation may have asked for them."""
        ending = {uid for uid, worker in self._workers.items() if worker.stage != "sync"}
        wanted = (self._desired.pods.keys() | self._workers.keys()) - ending
        self._context.images.tell(KeepPulls(pod_uids=tuple(wanted)))
