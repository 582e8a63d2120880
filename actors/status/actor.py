"""The status actor: every pod with its status, for all who ask, and with a kubeconfig for the API server.

It is fed by pod_workers, which sends everything anew when either side started; the checkpoint holds what nobody could
tell again (transition and start times) together with the pods themselves, so that a reader, and pod_workers seeding
itself, is answered at once even when both restart. What the API server is told is `api.py`'s.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from actors._base import Actor, Semaphore, handles
from actors._base.actor import ActorContext
from actors._host.files import checkpoint, paths
from actors._host.node.shutdown import ended_by_shutdown
from actors.status import policy
from proto.common.until import Until
from proto.pods.status import (
    FindPod,
    Flush,
    Flushed,
    ListPods,
    Pods,
    RemoveApiPods,
    RemovePod,
    SetApiPods,
    SetPod,
    SetPods,
    SetPodStatus,
    Stage,
)
from proto.v1 import Pod, PodStatus
from proto.wire.errors import AskTimeout

if TYPE_CHECKING:
    from actors.status.api import ApiSide

log = logging.getLogger(__name__)

CHECKPOINT_VERSION = 1
SAVE_PERIOD_S = 1.0
"""At most one write in that time, unless somebody reads."""
SAVE_SOON_S = 0.02
"""After a quiet time the first change is written soon, with those that come along with it."""
SAVE_DEADLINE_S = 0.5
"""A disk that hangs longer than this holds back no answer."""
LOOK_AGAIN_S = 10.0
"""The kubelet's syncPeriod of statuses."""


class Status(Actor):
    """State: `pods` by UID with their statuses settled, and `versions`, a count of each pod's changes."""

    name = "status"

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self.pods: dict[str, Pod] = {}
        self.versions: Counter[str] = Counter()
        self._path = os.path.join(paths.checkpoints_dir(self.settings.root_dir), "status.json")
        self._unsaved = False
        self._save_due = False
        self._saved_at = 0.0
        self._save_failed = False
        self._writing = Semaphore(1)
        self._api: ApiSide | None = None

    async def rebuild(self) -> None:
        """The pods of the checkpoint; pod_workers corrects them as soon as it sees this start."""
        for data in checkpoint.load(self._path, CHECKPOINT_VERSION) or ():
            try:
                pod = msgspec.convert(data, Pod)
            except msgspec.ValidationError as error:
                log.warning("leaving a pod out of %s: %s", self._path, error)
                continue
            if not ended_by_shutdown(pod):
                self.pods[pod.metadata.uid] = pod
        if self.settings.kubeconfig:
            from actors.status.api import ApiSide  # noqa: PLC0415 - an agent by itself has no use for it

            self._api = ApiSide(self)

    def on_ready(self) -> None:
        """With an API server: look at everything now and then, for what somebody else has overwritten there."""
        if self._api is not None:
            self.every(Until(LOOK_AGAIN_S), self._api.look_again, "look_again")

    # From pod_workers

    @handles(SetPods)
    def on_set_pods(self, message: SetPods) -> None:
        """Every pod there is."""
        listed = {pod.metadata.uid for pod in message.pods}
        self._forget(uid for uid in list(self.pods) if uid not in listed)
        for pod in message.pods:
            self._set(pod, message.stages.get(pod.metadata.uid, "sync"))
        if self._api is not None:
            self._api.all_told()

    @handles(SetPod)
    def on_set_pod(self, message: SetPod) -> None:
        """A new or changed pod."""
        self._set(message.pod, message.stage)

    @handles(SetPodStatus)
    def on_set_pod_status(self, message: SetPodStatus) -> None:
        """A status of a pod that is known. One that is not comes with its next SetPod or SetPods."""
        pod = self.pods.get(message.pod_uid)
        if pod is not None:
            self._set(replace(pod, status=message.status), message.stage)

    @handles(RemovePod)
    def on_remove_pod(self, message: RemovePod) -> None:
        """A pod of which nothing is left."""
        self._forget((message.pod_uid,))

    def _set(self, pod: Pod, stage: Stage) -> None:
        uid = pod.metadata.uid
        before = self.pods.get(uid)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = policy.settled(pod.status, before.status if before is not None else None, now)
        kept = replace(pod, status=status)
        if kept != before:
            if before is not None and before.status.phase != status.phase:
                _log_phase(pod, before.status, status)
            self._keep(kept)
        if self._api is not None:
            self._api.told(kept, stage)

    def _keep(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.versions[pod.metadata.uid] += 1
        self._changed()

    def _forget(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if self.pods.pop(uid, None) is not None:
                self.versions.pop(uid, None)
                self._changed()
            if self._api is not None:
                self._api.forgotten(uid)

    # The API server

    @handles(SetApiPods)
    def on_set_api_pods(self, message: SetApiPods) -> None:
        """From config: the API server's view."""
        if self._api is not None:
            self._api.seen(message.pods, full=message.full)

    @handles(RemoveApiPods)
    def on_remove_api_pods(self, message: RemoveApiPods) -> None:
        """From config: gone there."""
        if self._api is not None:
            self._api.gone(message.uids)

    def adopt(self, pod: Pod) -> None:
        """From the API side: a pod's status with the times that the API server has."""
        self._keep(pod)

    @handles(Flush)
    async def on_flush(self, request: Flush) -> Flushed:
        """Answer when the API server has all of it, or when the time is over."""
        return Flushed(unsaid=await self._api.flush(request.timeout_s) if self._api is not None else 0)

    # For all

    @handles(FindPod)
    def on_find(self, request: FindPod) -> Pods:
        """For whoever needs its containers now. Of two of one name, the one that goes comes last."""
        wanted = (request.namespace, request.name)
        found = [pod for pod in self.pods.values() if (pod.metadata.namespace, pod.metadata.name) == wanted]
        return Pods(pods=tuple(sorted(found, key=lambda pod: pod.metadata.deletion_timestamp is not None)))

    @handles(ListPods)
    async def on_list(self, _: ListPods) -> Pods:
        """Pods with status. What is shown is on disk first, so that no restart takes a shown time back."""
        await self._save()
        return Pods(pods=policy.ordered(self.pods.values()))

    def describe(self) -> dict[str, Any]:
        """How many pods in which phase, and how the checkpoint stands."""
        return {
            "pods": len(self.pods),
            "phases": dict(Counter(pod.status.phase or "" for pod in self.pods.values())),
            "changes": sum(self.versions.values()),
            "unsaved": self._unsaved,
            "checkpoint_failed": self._save_failed,
            **({"api": self._api.describe()} if self._api is not None else {}),
        }

    # Checkpoint

    def _changed(self) -> None:
        self._unsaved = True
        if not self._save_due:
            self._save_due = True
            wait_s = self._saved_at + SAVE_PERIOD_S - time.monotonic()
            self.after(max(SAVE_SOON_S, wait_s), self._save_now_due)

    def _save_now_due(self) -> None:
        self._save_due = False
        self.spawn(self._save(), "save")

    async def _save(self) -> None:
        """Write what has changed. A failure is said once, and tried again with the next change or reader."""
        async with self._writing:
            if not self._unsaved:
                return
            self._unsaved = False
            save = functools.partial(checkpoint.save, sync=False)
            try:
                await self.blocking(SAVE_DEADLINE_S, save, self._path, CHECKPOINT_VERSION, tuple(self.pods.values()))
            except (OSError, AskTimeout) as error:
                self._unsaved = True
                if not self._save_failed:
                    log.error("cannot write %s: %s; a restart now would lose transition times", self._path, error)
                self._save_failed = True
            else:
                self._save_failed = False
            self._saved_at = time.monotonic()

    def on_shutdown(self) -> None:
        """The last word to disk."""
        if self._unsaved:
            try:
                checkpoint.save(self._path, CHECKPOINT_VERSION, tuple(self.pods.values()), sync=False)
            except OSError as error:
                log.error("cannot write %s: %s", self._path, error)


def _log_phase(pod: Pod, before: PodStatus, status: PodStatus) -> None:
    meta = pod.metadata
    why = f" ({status.reason})" if status.reason else ""
    log.info("pod %s/%s: %s -> %s%s", meta.namespace, meta.name, before.phase or "new", status.phase, why)


ACTOR = Status
