"""The pleg actor: reports exited processes within milliseconds, and other changes within a relist period.

Exits come from pidfds, or from the runtime's events for containers without a PID; other changes from the relist. The
pod worker that gets a report reads the runtime itself.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from actors._base import Actor, gather, handles
from actors._cri.call import Call
from actors._cri.client import Cri
from actors._cri.errors import CriError, Unimplemented
from actors._metrics import kubelet as metrics
from actors.pleg import listing
from actors.pleg.pidfds import Pidfds
from actors.pleg.policy import Snapshot, changes, is_another
from proto.common.until import Until
from proto.cri import api_pb2 as pb
from proto.pods.pleg import (
    CallRuntime,
    CancelPull,
    ForgetPod,
    GetRelistAge,
    RelistAge,
    RuntimeAnswer,
    Watch,
    WatchProcesses,
)
from proto.pods.pod_workers import PodChanged
from proto.wire.errors import Refused

log = logging.getLogger(__name__)


class Pleg(Actor):
    """State: the watches of pod_workers, the last list, and the IDs whose end has been reported."""

    name = "pleg"

    async def rebuild(self) -> None:
        """Start empty: pod_workers sends every watch when this actor starts, and ended processes are detected then."""
        endpoint = self.settings.container_runtime_endpoint
        images = self.settings.image_service_endpoint or None
        self._cri = Cri(endpoint, images, after=self.after) if endpoint else None
        self._pulls: dict[Call[bytes], bytes] = {}
        """Calls of PullImage under way, with their requests."""
        self._own_cgroup = _cgroup("self")
        self._pidfds = Pidfds(self.bus, lambda fds: self.post(self._ended, fds, name="exits"))
        self._watches: dict[str, Watch] = {}
        self._fds: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._told: set[str] = set()
        self._listed: Snapshot | None = None
        self._relist_error = ""
        self._relist_s = 0.0
        self._began = time.monotonic()
        self._listed_at = 0.0
        self._relists = 0
        self._follows_events = False

    def on_ready(self) -> None:
        """Start relists after one period, when the watches have arrived."""
        if self._cri is not None:
            self.after(self.settings.relist_period_s, self._start_relists, self._cri)

    def _start_relists(self, cri: Cri) -> None:
        self.every(Until(self.settings.relist_period_s), lambda: self._relist(cri), "relist")

    def on_tells_lost(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Have pod_workers list every pod again: it may have missed an end. A new pod_workers lists them anyway."""
        if name == "pod_workers":
            watched = {watch.pod_uid for watch in self._watches.values()}
            for pod_uid in watched | {entry.pod_uid for entry in (self._listed or {}).values()}:
                self._tell(PodChanged(pod_uid=pod_uid))

    def describe(self) -> dict[str, Any]:
        """Counts of watches, and the result of the last relist."""
        return {
            "watches": len(self._watches),
            "without_pidfd": len(self._watches) - len(self._fds),
            "relists": self._relists,
            "last_relist_ms": round(self._relist_s * 1000, 3),
            "last_relist_error": self._relist_error,
            "listed": len(self._listed or ()),
            "follows_events": self._follows_events,
        }

    @handles(GetRelistAge)
    def relist_age(self, _: GetRelistAge) -> RelistAge:
        """Answer with the age of the last list."""
        return RelistAge(age_s=time.monotonic() - (self._listed_at or self._began))

    @handles(CallRuntime)
    async def call_runtime(self, call: CallRuntime) -> RuntimeAnswer:
        """Relay a call to the runtime and its answer, without decoding them. Refused with the runtime's code."""
        if self._cri is None:
            raise Refused("Unavailable", "no container runtime is configured")
        try:
            under_way = self._cri.relay(call.rpc, call.request, call.timeout_s)
        except ValueError as error:
            raise Refused("Unimplemented", str(error), retry=False) from error
        if call.rpc == "PullImage":
            self._pulls[under_way] = call.request
        try:
            return RuntimeAnswer(response=await under_way)
        except CriError as error:
            raise Refused(error.code, error.details) from error
        finally:
            self._pulls.pop(under_way, None)

    @handles(CancelPull)
    def cancel_pull(self, message: CancelPull) -> None:
        """Cancel calls of PullImage. Their requests are decoded only here: that is rare."""
        for call, content in list(self._pulls.items()):
            image, pod_uid = _pulled_for(content)
            if image == message.image and message.pod_uid in (None, pod_uid):
                call.cancel()

    # Processes

    @handles(WatchProcesses)
    def watch_processes(self, message: WatchProcesses) -> None:
        """Open a pidfd for each new watch, and report processes that have ended already."""
        if message.full:
            listed = {watch.id for watch in message.watches}
            for id_ in [id_ for id_ in self._watches if id_ not in listed]:
                self._forget(id_)
        gone = [watch for watch in message.watches if not self._watch(watch)]
        for watch in gone:
            self._forget(watch.id)
        self._tell_ended(gone)
        if len(self._watches) > len(self._fds):
            self._follow_events()

    @handles(ForgetPod)
    def forget_pod(self, message: ForgetPod) -> None:
        """Drop the pod's watches and list entries; if the runtime still lists it, the next relist reports it."""
        for id_ in [id_ for id_, watch in self._watches.items() if watch.pod_uid == message.pod_uid]:
            self._forget(id_)
        if self._listed is not None:
            self._listed = {id_: entry for id_, entry in self._listed.items() if entry.pod_uid != message.pod_uid}

    def _watch(self, watch: Watch) -> bool:
        # False when its process has ended.
        known = self._watches.get(watch.id)
        if known is not None and known.pid == watch.pid and (watch.id in self._fds or not watch.pid):
            return True
        self._forget(watch.id)
        self._watches[watch.id] = watch
        self._told.discard(watch.id)
        if not watch.pid:
            return True
        try:
            fd = self._pidfds.open(watch.pid)
        except ProcessLookupError:
            return False
        except OSError as error:
            log.error("cannot watch process %d of %s: %s; the relist reports its end", watch.pid, watch.id, error)
            return True
        self._fds[watch.id], self._ids[fd] = fd, watch.id
        # Read after the pidfd is open, so that a later reuse of the PID cannot go unnoticed.
        if is_another(_cgroup(watch.pid), watch.id, self._own_cgroup):
            self._close(watch.id)
        return True

    def _forget(self, id_: str) -> None:
        self._watches.pop(id_, None)
        self._close(id_)

    def _close(self, id_: str) -> None:
        """Watch without a process from now on: the runtime's events and the relist report the end."""
        fd = self._fds.pop(id_, None)
        if fd is not None:
            del self._ids[fd]
            self._pidfds.close(fd)

    def _ended(self, fds: list[int]) -> None:
        ended = []
        for fd in fds:
            id_ = self._ids.get(fd)
            if id_ is not None and self._pidfds.has_ended(fd):
                ended.append(self._watches[id_])
                self._forget(id_)
        self._tell_ended(ended)

    def _tell_ended(self, ended: Iterable[Watch]) -> None:
        by_pod: defaultdict[str, list[str]] = defaultdict(list)
        for watch in ended:
            by_pod[watch.pod_uid].append(watch.id)
            self._told.add(watch.id)
        for pod_uid, ids in by_pod.items():
            self._tell(PodChanged(pod_uid=pod_uid, exited=tuple(ids)))

    def _tell(self, change: PodChanged) -> None:
        self.peer("pod_workers").tell(change)

    # Lists

    async def _relist(self, cri: Cri) -> None:
        """Compare the runtime with its last list. An unavailable runtime is logged once."""
        watched = {id_: watch.pod_uid for id_, watch in self._watches.items()}
        began = time.monotonic()
        try:
            with cri.last_use():  # an open channel's threads wake until the next relist
                sandboxes, containers = await gather(cri.list_pod_sandbox(), cri.list_containers())
        except CriError as error:
            if not self._relist_error:
                log.warning("cannot list pods at %s: %s; exits are still reported", cri.endpoint, error)
            self._relist_error = str(error) or error.code
            return
        if self._relist_error:
            log.info("the runtime at %s lists pods again", cri.endpoint)
        self._relist_error = ""
        now = listing.snapshot(sandboxes, containers)
        found = changes(self._listed, now, watched, self._told)
        self._listed = now
        self._told |= found.ended
        self._told &= now.keys() | self._watches.keys()
        listing.set_gauges(sandboxes, containers)
        self._relists += 1
        self._relist_s = time.monotonic() - began
        metrics.RELIST_SECONDS.observe(self._relist_s)
        if self._listed_at:
            metrics.RELIST_INTERVAL_SECONDS.observe(began - self._listed_at)
        self._listed_at = began
        metrics.PLEG_LAST_SEEN.set(time.time())
        for pod_uid in found.pod_uids:
            self._tell(PodChanged(pod_uid=pod_uid))

    # Events

    def _follow_events(self) -> None:
        # Only for containers without a pidfd: the stream holds a thread, and is slower than pidfds.
        if self._cri is None or self._follows_events:
            return
        self._follows_events = True
        metrics.EVENTED_CONNECTIONS.inc()
        self._cri.container_events(
            lambda event: self.post(self._event, event), lambda reason: self.post(self._events_ended, reason)
        )

    def _event(self, event: pb.ContainerEventResponse) -> None:
        watch = self._watches.get(event.container_id)
        if watch is None or watch.id in self._fds:
            return
        if event.container_event_type == pb.CONTAINER_STOPPED_EVENT:
            self._forget(watch.id)
            self._tell_ended([watch])

    def _events_ended(self, reason: CriError) -> None:
        if isinstance(reason, Unimplemented):
            log.info("the runtime has no container events; the relist reports exits of processes without PID")
            return  # _follows_events stays set, so the stream is not requested again
        self._follows_events = False
        metrics.EVENTED_CONNECTION_ERRORS.inc()
        self.after(self.settings.relist_period_s, self._follow_events)


def _pulled_for(content: bytes) -> tuple[str, str]:
    """The image and the pod's UID of a PullImage request."""
    try:
        request = pb.PullImageRequest.FromString(content)
    except DecodeError:  # the runtime refuses it, too
        return "", ""
    return request.image.image, request.sandbox_config.metadata.uid


def _cgroup(pid: int | str) -> str:
    # /proc/PID/cgroup; empty, which proves nothing, when it cannot be read.
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cgroup").read_bytes())
    except OSError:
        return ""


ACTOR = Pleg
