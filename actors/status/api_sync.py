"""Writes pod statuses and mirror pods to the API server.

Imported only with a kubeconfig. Level-triggered: a change on either side queues its pod (`write_queue.py`), and the
next call is decided when the pod leaves the queue (`sync_actions.py`). Nothing is kept on disk: after a kill
pod_workers and config send both sides again, and equal pods are not written.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from actors._base import Actor
from actors._base.messaging.futures import Future
from actors._base.messaging.mailbox import TimerHandle
from actors._base.messaging.tasks import first_of
from actors._host.node.critical import is_static
from actors._kube import errors
from actors._metrics import kubelet as metrics
from actors.status import status_patch as patches
from actors.status.api_calls import ApiCalls
from actors.status.api_view import ApiPod, ApiView, full_name
from actors.status.policy import shortened
from actors.status.sync_actions import (
    CreateMirror,
    DeleteObject,
    LocalPod,
    Priority,
    SyncAction,
    WriteStatus,
    WrittenDigests,
    mirror_action,
    priority_of,
    status_action,
)
from actors.status.write_queue import CAP_S, GATHER_S, REFUSED_CAP_S, THROTTLED_S, WriteQueue
from proto.common import rfc3339
from proto.pods.pod_workers import StatusWritten
from proto.pods.status import Stage
from proto.v1 import Pod, PodStatus

log = logging.getLogger(__name__)

MAX_STATUS_BYTES = 512 * 1024
"""Larger ones are shortened after a refusal: etcd takes 1.5 MiB for a whole pod."""
FULL_RESYNC_EVERY = 6
"""One resync of so many compares every pod."""
VIEW_DELAY_S = 10.0
"""Wait after an answer that contradicts the view: config will send what the server has."""


class ApiSync:
    """State: the pods by UID as pod_workers sent them to this incarnation, and the API server's view of them.

    A pod's key in the queue is its UID, for a static pod the NAMESPACE/NAME that it shares with its mirror.
    """

    def __init__(self, actor: Actor, adopt_times: Callable[[Pod], None]) -> None:
        """`adopt_times` gets pods whose status now has the times of the API server."""
        self._actor, self._adopt_times = actor, adopt_times
        self.view = ApiView()
        self.complete = False
        """pod_workers has sent every pod."""
        self._pods: dict[str, LocalPod] = {}
        self._static: dict[str, str] = {}
        """NAMESPACE/NAME of a static pod to its UID."""
        self._written: dict[str, WrittenDigests] = {}
        """By the API server's UID."""
        self._told_ready: set[str] = set()
        """UIDs of pods whose first write as ready was told."""
        self._disrupted: set[str] = set()
        """UIDs of pods whose condition DisruptionTarget has the time of its first write."""
        self._too_large: set[str] = set()
        self._check_stored: set[str] = set()
        """Keys whose stored status is compared with the last write."""
        self._recently_changed: set[str] = set()
        """Keys that the next resync adds to `_check_stored`."""
        self._resyncs = 0
        self._queue = WriteQueue()
        self._calls = ApiCalls(actor)
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0
        self._drained: list[Future[None]] = []
        self._errors: dict[str, str] = {}
        self._outage = ""
        self._done = {"written": 0, "deleted": 0, "mirrors_created": 0}

    # Changes on either side

    def pod_changed(self, pod: Pod, stage: Stage) -> None:
        """Take a new or changed pod, or status, of this node."""
        uid, known = pod.metadata.uid, LocalPod(pod, stage)
        if self._pods.get(uid) == known:
            return
        self._pods[uid] = known
        if is_static(pod):
            self._static[full_name(pod)] = uid
        self._mark([_key(pod)])

    def pod_removed(self, uid: str) -> None:
        """Forget a pod of which nothing is left on this node."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        key = _key(known.pod)
        if self._static.get(key) == uid:
            del self._static[key]
        self._too_large.discard(uid)
        self._disrupted.discard(uid)
        self._told_ready.discard(uid)
        self._errors.pop(key, None)
        self._mark([key])

    def pods_complete(self) -> None:
        """pod_workers has sent every pod: mirrors of other pods are leftovers."""
        self.complete = True
        self._mark(self._leftovers())

    def api_pods_changed(self, pods: Iterable[Pod], *, full: bool) -> None:
        """Take pods that config has seen at the API server; `full`: all of this node's."""
        first = full and not self.view.complete
        changed = self.view.replace(pods) if full else self.view.change(pods)
        if first:
            changed |= {_key(known.pod) for known in self._pods.values()}
        if full:
            self._written = {uid: one for uid, one in self._written.items() if uid in self.view.pods}
        self._view_changed(changed)

    def api_pods_removed(self, uids: Iterable[str]) -> None:
        """Take the UIDs of pods that the API server has no more."""
        gone = tuple(uids)
        for uid in gone:
            self._written.pop(uid, None)
        self._view_changed(self.view.remove(gone))

    def _view_changed(self, keys: set[str]) -> None:
        self._queue.server_answered()
        keys = {key for key in keys if self._is_of_use(key)}
        self._recently_changed |= keys
        self._mark(keys, fresh=True)

    def _is_of_use(self, key: str) -> bool:
        """False for the name of a pod that is neither a mirror nor that of a static pod."""
        return "/" not in key or key in self._static or self.view.mirror(key) is not None

    def resync(self) -> None:
        """Compare what changed at the API server since the last resync; every FULL_RESYNC_EVERY times all pods.

        Runs every RESYNC_S, so that a field of ours that another client overwrote is written again.
        """
        self._resyncs += 1
        keys, self._recently_changed = self._recently_changed, set()
        if self._resyncs % FULL_RESYNC_EVERY == 0:
            keys |= {*(_key(known.pod) for known in self._pods.values()), *self._leftovers()}
        self._check_stored |= keys
        self._mark(keys, gather=False)

    def _leftovers(self) -> list[str]:
        return [one.name for one in self.view.mirrors() if one.name not in self._static]

    # The queue

    def _mark(self, keys: Iterable[str], *, fresh: bool = False, gather: bool = True) -> None:
        for key in keys:
            priority = self._priority(key)
            gather_s = GATHER_S if gather and priority == Priority.REST else 0.0
            self._queue.add(key, priority, time.monotonic(), gather_s=gather_s, fresh=fresh)
        self._pump()

    def _known(self, key: str) -> LocalPod | None:
        return self._pods.get(self._static.get(key, key))

    def _priority(self, key: str) -> Priority:
        there = self.view.mirror(key) if "/" in key else self.view.pods.get(key)
        return priority_of(self._known(key), there)

    def _pump(self) -> None:
        now = time.monotonic()
        while (key := self._queue.take(now)) is not None:
            action = self._action(key)
            self._check_stored.discard(key)
            if action is None:
                self._queue.unneeded(key)
                self._errors.pop(key, None)
            else:
                self._actor.spawn(self._run(key, action), f"api {key}")
        self._set_timer(now)
        if not len(self._queue):
            self._queue_drained()

    def _queue_drained(self) -> None:
        self._queue.drained()
        self._outage = ""
        drained, self._drained = self._drained, []
        for one in drained:
            one.set(None)

    def _set_timer(self, now: float) -> None:
        wait_s = self._queue.wait_s(now)
        if wait_s is None or (self._timer is not None and self._timer_at <= now + wait_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = now + wait_s
        self._timer = self._actor.after(wait_s, self._timer_over)

    def _timer_over(self) -> None:
        self._timer = None
        self._pump()

    def _action(self, key: str) -> SyncAction | None:
        known = self._known(key)
        there: SyncAction | ApiPod | None = self.view.pods.get(key)
        if "/" in key:
            there = mirror_action(known, key, self.view, complete=self.complete)
        if not isinstance(there, ApiPod):
            return there
        if known is None:
            return None
        if there.uid not in self._written:
            known = self._with_times(known, patches.with_api_times(known.pod.status, there.status))
        if known.pod.metadata.uid not in self._disrupted and patches.says_disruption(*known, there.status):
            self._disrupted.add(known.pod.metadata.uid)
            now = rfc3339.now()
            known = self._with_times(known, patches.with_disruption_time(known.pod.status, there.status, now))
        if known.pod.metadata.uid in self._too_large:
            known = known._replace(pod=msgspec.structs.replace(known.pod, status=shortened(known.pod.status)))
        return status_action(known, there, self._written.get(there.uid), check_stored=key in self._check_stored)

    def _with_times(self, known: LocalPod, status: PodStatus) -> LocalPod:
        """Give the pod the status, which has other times, in this actor's records too."""
        if status == known.pod.status:
            return known
        pod = msgspec.structs.replace(known.pod, status=status)
        self._pods[pod.metadata.uid] = known._replace(pod=pod)
        self._adopt_times(pod)
        return self._pods[pod.metadata.uid]

    async def flush(self, timeout_s: float) -> int:
        """Wait until everything is written, at most `timeout_s`. Returns the number of pods with a pending write."""
        if len(self._queue):
            drained: Future[None] = Future()
            self._drained.append(drained)
            await first_of(drained, self._actor.sleep(timeout_s))
        return len(self._queue)

    # Calls

    async def _run(self, key: str, action: SyncAction) -> None:
        since, began_ns = self._queue.since(key), time.time_ns()
        try:
            await self._execute(action)
        except errors.ApiError as error:
            self._failed(key, action, error)
        else:
            if isinstance(action, WriteStatus):
                metrics.STATUS_SYNC_SECONDS.observe(time.monotonic() - since)
                self._tell_ready_written(key, action.status, began_ns)
            self._queue.succeeded(key, self._priority(key), time.monotonic())
            self._errors.pop(key, None)
            if self._outage:
                log.warning("the API server accepts pod writes again")
            self._outage = ""
        self._pump()

    def _tell_ready_written(self, key: str, status: PodStatus, began_ns: int) -> None:
        """Tell pod_workers of the first write of a pod's readiness, for its timeline."""
        known = self._known(key)
        is_ready = any(one.type == "Ready" and one.status == "True" for one in status.conditions)
        if known is None or not is_ready or known.pod.metadata.uid in self._told_ready:
            return
        uid = known.pod.metadata.uid
        self._told_ready.add(uid)
        written = StatusWritten(pod_uid=uid, began_ns=began_ns, ended_ns=time.time_ns())
        self._actor.peer("pod_workers").tell(written)

    async def _execute(self, action: SyncAction) -> None:
        match action:
            case DeleteObject():
                left = await self._calls.delete(action)
                if left is None:
                    self.view.deleted_by_us(action.target.uid)
                    self._written.pop(action.target.uid, None)
                self._update_view(left)
                self._done["deleted"] += 1
            case CreateMirror():
                self._update_view(await self._calls.create_mirror(action))
                self._done["mirrors_created"] += 1
            case _:
                stored = await self._calls.write(action)
                self._update_view(stored)
                after = patches.comparable(stored.status if stored is not None else action.status, action.status)
                self._written[action.target.uid] = WrittenDigests(patches.digest(action.status), patches.digest(after))
                self._done["written"] += 1

    def _update_view(self, answered: Pod | None) -> None:
        if answered is not None:
            self.view.change((answered,))

    # Failures

    def _failed(self, key: str, action: SyncAction, error: errors.ApiError) -> None:
        now, priority = time.monotonic(), self._priority(key)
        text = f"{type(error).__name__}: {error}"
        throttled = isinstance(error, errors.TooManyRequests) or (
            isinstance(error, errors.ServerTrouble) and error.retry_after_s is not None
        )
        if throttled or isinstance(error, errors.Unauthorized | errors.Unreachable):
            retry_after_s = (error.retry_after_s or THROTTLED_S) if throttled else None
            if type(error).__name__ != self._outage.partition(":")[0]:  # the rest names the pod that tried
                log.warning("cannot write any pod to the API server: %s; tried again", text)
            self._outage = text
            if isinstance(error, errors.Unreachable):
                self._calls.rebuild()
            self._queue.unavailable(key, priority, now, random.random(), retry_after_s)
            return
        if self._errors.get(key) != text:
            log.warning("cannot %s: %s; tried again", _describe_action(action), text)
        self._errors[key] = text
        cap_s = REFUSED_CAP_S if isinstance(error, errors.Forbidden | errors.Invalid) else CAP_S
        self._queue.refused(key, priority, now, self._wait_s(key, action, error), cap_s)

    def _wait_s(self, key: str, action: SyncAction, error: errors.ApiError) -> float | None:
        """Seconds before the next try after this refusal; None: exponential back-off."""
        uid = self._static.get(key, key)
        if isinstance(action, WriteStatus):
            if isinstance(error, errors.NotFound):
                return VIEW_DELAY_S
            if _is_too_large(action, error) and uid not in self._too_large:
                self._too_large.add(uid)  # its messages are shortened from now on
                return 0.0
        return VIEW_DELAY_S if isinstance(error, errors.AlreadyExists) else None

    def describe(self) -> dict[str, Any]:
        """State for the console: pods seen and pending, the outage and refusals, calls done."""
        return {
            "seen": len(self.view.pods) if self.view.complete else None,
            "pending": len(self._queue),
            "held_s": round(self._queue.held_s(time.monotonic()), 1),
            "outage": self._outage,
            "refused": dict(self._errors),
            **self._done,
        }


def _key(pod: Pod) -> str:
    return full_name(pod) if is_static(pod) else pod.metadata.uid


def _is_too_large(action: WriteStatus, error: errors.ApiError) -> bool:
    """True when the write was refused for its size: by the server (413), or by etcd, whose error has no own code."""
    return error.status == 413 or len(msgspec.json.encode(action.status)) > MAX_STATUS_BYTES


def _describe_action(action: SyncAction) -> str:
    match action:
        case DeleteObject():
            return f"delete the pod {action.target.name}"
        case CreateMirror():
            return f"create the mirror pod {full_name(action.pod)}"
        case _:
            return f"write the status of {action.target.name}"
