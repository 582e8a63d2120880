"""The source of pods that is the API server: this node's pods, listed and watched, told to status and pod_workers.

Imported with a kubeconfig only. The watch has a thread of its own, which also decodes; what it finds is judged in the
mailbox by `api_policy.py`. status hears of everything, before pod_workers hears of what makes a difference to a running
pod, so that what our own status patches come back as costs nothing. Nothing of the pods is kept on disk: pod_workers
keeps those it has accepted. What is kept is how far the server was, to recognise one that has gone back in time.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from actors._base import Actor
from actors._events.recorder import Recorder
from actors._host.files import checkpoint, paths
from actors._kube.connection.session import Session
from actors._kube.errors import ApiError, Gone
from actors._kube.watch import Listener, Watch
from actors.config.sources.api_policy import SOURCE, ApiView, BadPod, Doubt, News, decoded, judged, view_of
from proto.pods.config import SourceProblem
from proto.pods.status import RemoveApiPods, SetApiPods
from proto.v1 import Pod
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

PODS = "/api/v1/pods"
CHECKPOINT_VERSION = 1
SAVE_TIMEOUT_S = 2.0
SAVE_PERIOD_S = 10.0
"""How far the server has come need not be known to the second."""

Tell = Callable[[Any, tuple[Pod, ...]], None]


class ApiPods(Listener):
    """See the module."""

    def __init__(self, actor: Actor, tell: Tell) -> None:
        self._actor = actor
        self._tell = tell
        self._view = ApiView()
        self._seen = False
        self._problem = "the API server has not answered yet"
        self._lock = threading.Lock()
        self._doubt = Doubt()
        """Under the lock: the watch's thread judges each list."""
        self._saved: Doubt | None = None
        self._asked_newest = False
        self._saving = False
        query = {"fieldSelector": f"spec.nodeName={self._actor.settings.node_name}"}
        self._watch = Watch(Session(self._actor.settings.kubeconfig), PODS, self, query)

    def recover(self) -> None:
        """How far the server was."""
        data = checkpoint.load(self._path(), CHECKPOINT_VERSION)
        try:
            if data is not None:
                self._saved = self._doubt = Doubt(*msgspec.convert(data, tuple[int, bool]))
        except msgspec.ValidationError as error:
            log.warning("cannot use the checkpoint %s: %s; going on without it", self._path(), error)

    def start(self) -> None:
        """List and watch for as long as the process lives."""
        self._watch.start()

    def resend(self, name: str) -> None:
        """Tell a peer that has started all there is. The SET also says that the source has been seen."""
        if not self._seen:
            return
        if name == "status":
            pods = tuple(map(view_of, self._view.shown()))
            self._actor.peer("status").tell(SetApiPods(pods=pods, full=True))
        elif name == "pod_workers":
            self._tell_all()

    def names(self) -> tuple[str, ...]:
        """NAMESPACE/NAME of every pod to run."""
        return tuple(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in self._view.pods.values())

    def problems(self) -> list[SourceProblem]:
        """Why the pods cannot be read now, and objects that are no pods."""
        found = [
            SourceProblem(file=f"{PODS} {one.namespace}/{one.name}", problem=one.problem)
            for one in self._view.bad.values()
        ]
        for problem in (self._problem, self._doubted()):
            if problem:
                found.append(SourceProblem(file=PODS, problem=problem, keeps_previous=bool(self._view.pods)))
        return found

    def describe(self) -> dict[str, Any]:
        """What a console shows."""
        return {
            "seen": self._seen,
            "version": self._watch.version,
            "pods": len(self._view.pods),
            "mirror_pods": len(self._view.mirrors),
            "missing": sorted(self._view.missing),
            "problems": [one.problem for one in self.problems()],
        }

    # In the watch's thread

    def replaced(self, items: list[dict[str, Any]]) -> None:
        """A list. Raises Gone for one that is older than the last one was, and may be a lagging server's."""
        version = self._watch.version
        with self._lock:
            verdict, doubt = judged(self._doubt, _number(version), newest=self._asked_newest)
            self._asked_newest = verdict == "ask_newest"
            if verdict == "ask_newest":
                raise Gone(410, "Expired", f"the list of version {version} is older than one before: {doubt.version}")
            self._doubt = doubt
        now = _now()
        found = [decoded(item, now) for item in items]
        self._actor.post(self._replaced, found, doubt, name="api_pods")

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        """An event."""
        self.marked(str((item.get("metadata") or {}).get("resourceVersion") or ""))
        self._actor.post(self._changed, kind, decoded(item, _now()), name="api_pod")

    def marked(self, version: str) -> None:
        """The server has come so far."""
        with self._lock:
            if not self._doubt.behind:
                self._doubt = Doubt(max(self._doubt.version, _number(version)))

    def failed(self, error: ApiError) -> None:
        """It is tried again."""
        self._actor.post(self._failed, error, name="api_failed")

    # In the mailbox

    def _replaced(self, found: list[Pod | BadPod], doubt: Doubt) -> None:
        if self._problem and self._seen:
            log.info("the API server's pods are followed again")
        self._problem = ""
        news = self._view.replaced(found, keep_missing=doubt.behind)
        self._actor.peer("status").tell(SetApiPods(pods=tuple(map(view_of, news.shown)), full=True))
        if self._seen:
            self._tell_updates(news)
        else:
            self._seen = True
            self._tell_all()
        self._say_bad(news)
        if doubt.behind and self._view.missing:
            self._say_doubt()
        self._save_soon(0.0)

    def _tell_all(self) -> None:
        """Without saying that this is all, where the server may have lost some."""
        self._tell("ADD" if self._doubt.behind else "SET", tuple(self._view.pods.values()))

    def _changed(self, kind: str, one: Pod | BadPod) -> None:
        news = self._view.changed(kind, one)
        status = self._actor.peer("status")
        if news.shown:
            status.tell(SetApiPods(pods=tuple(map(view_of, news.shown))))
        if news.gone:
            status.tell(RemoveApiPods(uids=tuple(news.gone)))
        self._tell_updates(news)
        self._say_bad(news)
        self._save_soon(SAVE_PERIOD_S)

    def _tell_updates(self, news: News) -> None:
        for op, pods in news.updates:
            self._tell(op, pods)

    def _failed(self, error: ApiError) -> None:
        problem = f"cannot read this node's pods: {error}"
        if problem != self._problem:
            log.warning("%s; tried again, and the pods known so far keep running", problem)
        self._problem = problem

    def _say_bad(self, news: News) -> None:
        events = Recorder(self._actor.peer("events"))
        for one in news.bad:
            who = f"{one.name}_{one.namespace}({one.uid})"
            log.error("pod %s of the API server: %s; what is known of it so far stands", who, one.problem)
            message = f"Error validating pod {who} from {SOURCE}, ignoring: {one.problem}"
            events.node("Warning", "FailedValidation", message)

    # A server that has gone back in time

    def _doubted(self) -> str:
        if not self._doubt.behind:
            return ""
        return (
            f"the API server has gone back in time (before version {self._doubt.version}): its data was lost or "
            f"restored. Pods that it does not know any more are not ended; to have them ended, remove {self._path()} "
            "and run: supervisor restart config"
        )

    def _say_doubt(self) -> None:
        log.error("%s", self._doubted())
        Recorder(self._actor.peer("events")).node("Warning", "ApiServerWentBack", self._doubted())

    def _path(self) -> str:
        return os.path.join(paths.checkpoints_dir(self._actor.settings.root_dir), "config-api.json")

    def _save_soon(self, delay_s: float) -> None:
        if not self._saving:
            self._saving = True
            self._actor.after(delay_s, lambda: self._actor.spawn(self._save(), "save_version"))

    async def _save(self) -> None:
        self._saving = False
        doubt = self._doubt
        if doubt == self._saved:
            return  # what an operator removes stays removed
        save = functools.partial(checkpoint.save, sync=False)
        try:
            await self._actor.blocking(SAVE_TIMEOUT_S, save, self._path(), CHECKPOINT_VERSION, doubt)
            self._saved = doubt
        except (OSError, AskTimeout) as error:
            log.error("cannot write %s: %s; a restart of config would not notice lost data", self._path(), error)


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"
