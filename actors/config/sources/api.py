"""The API server as a source of pods: lists and watches this node's pods and sends them to status and pod_workers.

Imported with a kubeconfig only. `api_policy.py` decides. status gets every change first. pod_workers gets only changes
that matter to a running pod, so the echo of our own status patches costs nothing. No pods are kept on disk, as
pod_workers keeps the accepted ones. The checkpoint has the newest version seen, to recognise a server that has gone
back in time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from actors._base import Actor
from actors._events.recorder import Recorder
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors._kube.client import connect_node
from actors._kube.connection.stream import Streams
from actors._kube.errors import ApiError, Gone
from actors._kube.follow import Follower
from actors._kube.reflector import Listener, Position
from actors._kube.shapes import version_number
from actors.config.policy import names
from actors.config.sources.api_policy import (
    SOURCE,
    ApiView,
    SeenVersion,
    ViewChange,
    decode,
    judge_list,
    view_of,
)
from proto.common import rfc3339
from proto.pods.config import SourceProblem
from proto.pods.status import RemoveApiPods, SetApiPods
from proto.v1 import Pod

log = logging.getLogger(__name__)

PODS = "/api/v1/pods"
CHECKPOINT_VERSION = 1
SAVE_TIMEOUT_S = 2.0
SAVE_PERIOD_S = 10.0
"""Delay of the checkpoint: a version that is some seconds old is good enough."""

Tell = Callable[[Any, tuple[Pod, ...]], None]


class ApiPods(Listener):
    """State: the view of the API server's pods, the source's problem, and the newest version seen."""

    def __init__(self, actor: Actor, tell: Tell) -> None:
        self._actor = actor
        self._tell = tell
        self._view = ApiView()
        self._seen = False
        self._problem = "the API server has not answered yet"
        self._seen_version = SeenVersion()
        path = os.path.join(paths.checkpoints_dir(actor.settings.root_dir), "config-api.json")
        loss = "a restart of config would not notice lost data"
        self._checkpoint = CheckpointFile(actor, path, CHECKPOINT_VERSION, loss, deadline_s=SAVE_TIMEOUT_S)
        self._saved: SeenVersion | None = None
        self._asked_newest = False
        self._saving = False
        settings = actor.settings
        self._position = Position(PODS, {"fieldSelector": f"spec.nodeName={settings.node_name}"})
        client = connect_node(actor, settings, threads=1, tries=1)
        self._follower = Follower(actor, client, Streams(actor.bus), self._position, self)

    def recover(self) -> None:
        """Load the newest version that was seen."""
        data = self._checkpoint.load()
        try:
            if data is not None:
                self._saved = self._seen_version = SeenVersion(*msgspec.convert(data, tuple[int, bool]))
        except msgspec.ValidationError as error:
            log.warning("cannot use the checkpoint %s: %s; going on without it", self._checkpoint.path, error)

    def start(self) -> None:
        """Start to list and watch, for as long as the process lives."""
        self._follower.start()

    def resend(self, name: str) -> None:
        """Send all pods to a peer that started. The SET also means that the source has been read."""
        if not self._seen:
            return
        if name == "status":
            pods = tuple(map(view_of, self._view.shown()))
            self._actor.peer("status").tell(SetApiPods(pods=pods, full=True))
        elif name == "pod_workers":
            self._tell_all()

    def names(self) -> tuple[str, ...]:
        """NAMESPACE/NAME of every pod to run."""
        return names(self._view.pods.values())

    def problems(self) -> list[SourceProblem]:
        """Reasons why the pods cannot be read now, and objects that are no valid pods."""
        found = [
            SourceProblem(file=f"{PODS} {one.namespace}/{one.name}", problem=one.problem)
            for one in self._view.bad.values()
        ]
        for problem in (self._problem, self._behind_problem()):
            if problem:
                found.append(SourceProblem(file=PODS, problem=problem, keeps_previous=bool(self._view.pods)))
        return found

    def describe(self) -> dict[str, Any]:
        """State for the console: the watch's version, counts of pods, and problems."""
        return {
            "seen": self._seen,
            "version": self._position.version or "",
            "pods": len(self._view.pods),
            "mirror_pods": len(self._view.mirrors),
            "missing": sorted(self._view.missing),
            "problems": [one.problem for one in self.problems()],
        }

    # As the follower's listener

    def replaced(self, items: list[dict[str, Any]]) -> None:
        """Take a list. Raises Gone for a list that is older than the last one and may come from a lagging cache."""
        version = self._position.version or ""
        verdict, seen = judge_list(self._seen_version, _number(version), from_etcd=self._asked_newest)
        self._asked_newest = verdict == "ask_newest"
        if verdict == "ask_newest":
            raise Gone(410, "Expired", f"the list of version {version} is older than one before: {seen.version}")
        self._seen_version = seen
        now = rfc3339.nanos(time.time_ns())
        found = [decode(item, now) for item in items]
        if self._problem and self._seen:
            log.info("can read this node's pods again")
        self._problem = ""
        change = self._view.replaced(found, keep_missing=seen.behind)
        self._actor.peer("status").tell(SetApiPods(pods=tuple(map(view_of, change.shown)), full=True))
        if self._seen:
            self._tell_updates(change)
        else:
            self._seen = True
            self._tell_all()
        self._report_bad(change)
        if seen.behind and self._view.missing:
            self._report_behind()
        self._save_soon(0.0)

    def _tell_all(self) -> None:
        """Send all pods; as ADD, not SET, while the server may have lost some."""
        self._tell("ADD" if self._seen_version.behind else "SET", tuple(self._view.pods.values()))

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        """Take an event of the watch."""
        self.marked(str((item.get("metadata") or {}).get("resourceVersion") or ""))
        change = self._view.changed(kind, decode(item, rfc3339.nanos(time.time_ns())))
        status = self._actor.peer("status")
        if change.shown:
            status.tell(SetApiPods(pods=tuple(map(view_of, change.shown))))
        if change.gone:
            status.tell(RemoveApiPods(uids=tuple(change.gone)))
        self._tell_updates(change)
        self._report_bad(change)
        self._save_soon(SAVE_PERIOD_S)

    def _tell_updates(self, change: ViewChange) -> None:
        for op, pods in change.updates:
            self._tell(op, pods)

    def marked(self, version: str) -> None:
        """Take the version of a bookmark or an event."""
        if not self._seen_version.behind:
            self._seen_version = SeenVersion(max(self._seen_version.version, _number(version)))

    def failed(self, error: ApiError) -> None:
        """Report an error; the follower tries again."""
        problem = f"cannot read this node's pods: {error}"
        if problem != self._problem:
            log.warning("%s; tried again, and the pods known so far keep running", problem)
        self._problem = problem

    def _report_bad(self, change: ViewChange) -> None:
        events = Recorder(self._actor.peer("events"))
        for one in change.bad:
            who = f"{one.name}_{one.namespace}({one.uid})"
            log.error("cannot use pod %s of the API server: %s; its last good version stands", who, one.problem)
            message = f"Error validating pod {who} from {SOURCE}, ignoring: {one.problem}"
            events.node("Warning", "FailedValidation", message)

    # A server that has gone back in time

    def _behind_problem(self) -> str:
        if not self._seen_version.behind:
            return ""
        return (
            f"the API server has gone back in time (before version {self._seen_version.version}): its data was lost or "
            f"restored. Pods that it does not know any more are not ended; to have them ended, remove "
            f"{self._checkpoint.path} and run: supervisor restart config"
        )

    def _report_behind(self) -> None:
        log.error("%s", self._behind_problem())
        Recorder(self._actor.peer("events")).node("Warning", "ApiServerWentBack", self._behind_problem())

    def _save_soon(self, delay_s: float) -> None:
        if not self._saving:
            self._saving = True
            self._actor.after(delay_s, lambda: self._actor.spawn(self._save(), "save_version"))

    async def _save(self) -> None:
        self._saving = False
        seen = self._seen_version
        if seen == self._saved:
            return  # a checkpoint that an operator removed stays removed
        if await self._checkpoint.save(seen):
            self._saved = seen


def _number(version: str) -> int:
    return version_number(version) or 0
