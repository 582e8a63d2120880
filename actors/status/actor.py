"""The status actor: keeps every pod with its status, and answers queries for them.

pod_workers feeds it, and sends everything again when either side starts. The checkpoint keeps transition and start
times, which no other process has. It has the pods too, so that readers, and a starting pod_workers, get answers at once
even when both restart. `api_sync.py` writes to the API server, where there is a kubeconfig.
"""

from __future__ import annotations

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
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors._host.node.shutdown import ended_by_shutdown
from actors._metrics import kubelet as metrics
from actors.status import policy
from actors.status.server_feed import SERVER, ServerFeed
from actors.status.start_latency import StartLatency
from proto.common import rfc3339
from proto.common.until import Until
from proto.pods.status import (
    FindPod,
    Flush,
    Flushed,
    ListPods,
    Pods,
    PodStarted,
    RemoveApiPods,
    RemovePod,
    SetApiPods,
    SetPod,
    SetPods,
    SetPodStatus,
    Stage,
)
from proto.v1 import Pod, PodStatus

if TYPE_CHECKING:
    from actors.status.api_sync import ApiSync

log = logging.getLogger(__name__)

CHECKPOINT_VERSION = 1
SAVE_PERIOD_S = 1.0
"""At most one write in this time, but for queries, which write first."""
SAVE_SOON_S = 0.02
"""Delay of the first write after a quiet time, to include changes that come together."""
SAVE_DEADLINE_S = 0.5
"""Queries are answered after this time even when the disk hangs."""
RESYNC_S = 10.0
"""The kubelet's syncPeriod of statuses."""


class Status(Actor):
    """State: `pods` by UID with settled statuses (`policy.settled`), and `versions`, a count of each pod's changes."""

    name = "status"

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self.pods: dict[str, Pod] = {}
        self._encoded: dict[str, msgspec.Raw] = {}
        """Pods as JSON, by UID, until they change: a write then encodes the changed ones only."""
        self.versions: Counter[str] = Counter()
        path = os.path.join(paths.checkpoints_dir(self.settings.root_dir), "status.json")
        loss = "a restart now would lose transition times"
        self._file = CheckpointFile(self, path, CHECKPOINT_VERSION, loss, deadline_s=SAVE_DEADLINE_S)
        self._unsaved = False
        self._save_due = False
        self._saved_at = 0.0
        self._writing = Semaphore(1)
        self._api: ApiSync | None = None
        self._latency = StartLatency()
        self._feed = ServerFeed(self.peer(SERVER), self.pods.values)

    async def rebuild(self) -> None:
        """Load the pods of the checkpoint; pod_workers corrects them as soon as it sees this start."""
        for data in self._file.load() or ():
            try:
                pod = msgspec.convert(data, Pod)
            except msgspec.ValidationError as error:
                log.warning("cannot read a pod of %s: %s; left out", self._file.path, error)
                continue
            if not ended_by_shutdown(pod):
                self.pods[pod.metadata.uid] = pod
        if self.settings.kubeconfig:
            from actors.status.api_sync import ApiSync  # noqa: PLC0415 - saves the memory where there is no kubeconfig

            self._api = ApiSync(self, self._store)

    def on_ready(self) -> None:
        """With an API server: resync now and then, as other clients may overwrite statuses there."""
        if self._api is not None:
            self.every(Until(RESYNC_S), self._api.resync, "resync")

    def measure(self) -> None:
        """Count the mirror pods that the API server has."""
        metrics.MIRROR_PODS.set(len(self._api.view.mirrors()) if self._api is not None else 0)

    def on_peer_started(self, name: str, incarnation: int) -> None:
        """Give a server all pods."""
        if name == SERVER:
            self._feed.started(incarnation)

    def on_peer_exited(self, name: str, incarnation: int) -> None:
        """Send an ended server no more changes."""
        if name == SERVER:
            self._feed.exited(incarnation)

    # From pod_workers

    @handles(SetPods)
    def on_set_pods(self, message: SetPods) -> None:
        """Replace all pods."""
        listed = {pod.metadata.uid for pod in message.pods}
        self._forget(uid for uid in list(self.pods) if uid not in listed)
        for pod in message.pods:
            self._set(pod, message.stages.get(pod.metadata.uid, "sync"))
        if self._api is not None:
            self._api.pods_complete()

    @handles(SetPod)
    def on_set_pod(self, message: SetPod) -> None:
        """Take a new or changed pod."""
        self._set(message.pod, message.stage)

    @handles(SetPodStatus)
    def on_set_pod_status(self, message: SetPodStatus) -> None:
        """Take the status of a known pod. Statuses of unknown pods are ignored: SetPod or SetPods will bring them."""
        pod = self.pods.get(message.pod_uid)
        if pod is not None:
            self._set(replace(pod, status=message.status), message.stage)

    @handles(RemovePod)
    def on_remove_pod(self, message: RemovePod) -> None:
        """Forget a pod of which nothing is left, or that has begun anew after this end."""
        kept = self.pods.get(message.pod_uid)
        if not message.reason or (kept is not None and policy.ended_with(kept.status, message.reason, message.message)):
            self._forget((message.pod_uid,))

    def _set(self, pod: Pod, stage: Stage) -> None:
        uid = pod.metadata.uid
        before = self.pods.get(uid)
        now = rfc3339.now()
        status = policy.settled(pod.status, before.status if before is not None else None, now)
        kept = replace(pod, status=status)
        if kept != before:
            if before is not None and before.status.phase != status.phase:
                _log_phase(pod, before.status, status)
            self._store(kept)
        if self._api is not None:
            self._api.pod_changed(kept, stage)

    def _store(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self._encoded.pop(pod.metadata.uid, None)
        self.versions[pod.metadata.uid] += 1
        self._feed.changed(pod)
        self._changed()

    def _forget(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if self.pods.pop(uid, None) is not None:
                self._encoded.pop(uid, None)
                self.versions.pop(uid, None)
                self._feed.removed(uid)
                self._changed()
            if self._api is not None:
                self._api.pod_removed(uid)

    # The API server

    @handles(PodStarted)
    def on_pod_started(self, message: PodStarted) -> None:
        """Time the pod's start."""
        self._latency.started(message.pod_uid, message.left_out_s)

    @handles(SetApiPods)
    def on_set_api_pods(self, message: SetApiPods) -> None:
        """From config: pods as the API server has them."""
        if message.full:
            self._latency.keep({pod.metadata.uid for pod in message.pods})
        self._latency.watched(message.pods, self.pods.get, time.time())
        if self._api is not None:
            self._api.api_pods_changed(message.pods, full=message.full)

    @handles(RemoveApiPods)
    def on_remove_api_pods(self, message: RemoveApiPods) -> None:
        """From config: UIDs of pods that the API server has no more."""
        self._latency.forget(message.uids)
        if self._api is not None:
            self._api.api_pods_removed(message.uids)

    @handles(Flush)
    async def on_flush(self, request: Flush) -> Flushed:
        """Answer when the API server has every status, or after the request's timeout."""
        return Flushed(unsaid=await self._api.flush(request.timeout_s) if self._api is not None else 0)

    # Queries

    @handles(FindPod)
    def on_find(self, request: FindPod) -> Pods:
        """Find pods by namespace and name, without a write to disk. Of two, the one being deleted comes last."""
        wanted = (request.namespace, request.name)
        found = [pod for pod in self.pods.values() if (pod.metadata.namespace, pod.metadata.name) == wanted]
        return Pods(pods=tuple(sorted(found, key=lambda pod: pod.metadata.deletion_timestamp is not None)))

    @handles(ListPods)
    async def on_list(self, _: ListPods) -> Pods:
        """List all pods. They are on disk before the answer, so that no restart changes a time that was shown."""
        await self._save()
        return Pods(pods=policy.ordered(self.pods.values()))

    def describe(self) -> dict[str, Any]:
        """State for the console: pods by phase and the state of the checkpoint."""
        return {
            "pods": len(self.pods),
            "phases": dict(Counter(pod.status.phase or "" for pod in self.pods.values())),
            "changes": sum(self.versions.values()),
            "unsaved": self._unsaved,
            "checkpoint_failed": self._file.failed,
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
        """Write the checkpoint if it is stale. After a failure, changes and queries try again, too."""
        async with self._writing:
            if not self._unsaved:
                return
            self._unsaved = False
            if not await self._file.save(self._content()):
                self._unsaved = True
            self._saved_at = time.monotonic()

    def _content(self) -> list[msgspec.Raw]:
        for uid, pod in self.pods.items():
            if uid not in self._encoded:
                self._encoded[uid] = msgspec.Raw(msgspec.json.encode(pod))
        return [self._encoded[uid] for uid in self.pods]

    def on_shutdown(self) -> None:
        """Write the last changes."""
        if self._unsaved:
            try:
                self._file.write(self._content())
            except OSError as error:
                log.error("cannot write %s: %s", self._file.path, error)


def _log_phase(pod: Pod, before: PodStatus, status: PodStatus) -> None:
    meta = pod.metadata
    why = f" ({status.reason})" if status.reason else ""
    log.info("pod %s/%s: %s -> %s%s", meta.namespace, meta.name, before.phase or "new", status.phase, why)


ACTOR = Status
