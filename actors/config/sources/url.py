"""A URL as a source of static pods: fetches and parses its answer and sends the changes to pod_workers.

`fetch.py` and the parser run in child processes with deadlines. Any error keeps the last good pods. The checkpoint has
them, and is written before pod_workers hears of them. So they also run after a restart while the server is away.
Source: pkg/kubelet/config/http.go. There an empty answer ends all pods. Here it is an error like the others once pods
are known. Before, the source counts as read, with no pods: else orphaned pods and old containers would stay for ever.
A checkpoint that cannot be read may have pods that run: then only a good answer counts.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import resource
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from actors._base import Actor, Semaphore
from actors._base.process.run_in_subprocess import SubprocessError, run_in_subprocess
from actors._events.recorder import Recorder
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors.config import policy
from actors.config.pods.static_pods import CONFIG_SEEN, Allowed, load_answer, mark_seen
from actors.config.sources.fetch import FETCH_S, EmptyAnswer, fetch
from actors.config.sources.url_policy import FetchError, shown
from actors.config.validation.problems import ManifestError, ManifestWarning
from proto.common.until import Until
from proto.pods.config import SourceProblem
from proto.v1 import Pod
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

SOURCE = "http"
CHECKPOINT_VERSION = 1
SAVE_TIMEOUT_S = 2.0
PARSE_S = 10.0
FORK_S = 5.0
"""Time to start and end a child process on a machine that is busy."""
LEAST_PERIOD_S = 1.0
"""A shorter httpCheckFrequency would only load the server."""
MAX_PARSE_BYTES = 1 << 30
"""Memory of the child that parses: 10 MiB of YAML in many small pieces were seen to take 0.7 GB."""
MAX_WARNINGS = 20
"""Lines of the log for one answer: 10 MiB may have a million unknown fields."""

Tell = Callable[[Any, tuple[Pod, ...]], None]


class _Read(NamedTuple):
    """The pods of an answer, or the arguments of a ManifestError; and MAX_WARNINGS for its author, of how many."""

    pods: tuple[Pod, ...] = ()
    error: tuple[str, int, str, str, tuple[str, ...]] | None = None
    """With `pods`: of the pods that are left out, because another one has their name or UID."""
    warnings: tuple[ManifestWarning, ...] = ()
    found_warnings: int = 0


class _Saved(NamedTuple):
    """The checkpoint: the pods, and a digest of the URL and the node that they are for."""

    place: str
    pods: tuple[Pod, ...]


class UrlPods:
    """State: the pods of the last good answer, and the problems since. For the actor's thread."""

    def __init__(self, actor: Actor, tell: Tell) -> None:
        self._actor = actor
        self._tell = tell
        self._url = actor.settings.static_pod_url
        self._header = actor.settings.static_pod_url_header
        self._shown = shown(self._url)
        path = paths.url_pods(actor.settings.root_dir)
        loss = "after a restart, pods of the URL would wait for its server"
        self._checkpoint = CheckpointFile(actor, path, CHECKPOINT_VERSION, loss, deadline_s=SAVE_TIMEOUT_S)
        self._pods: tuple[Pod, ...] = ()
        self._recovered = False
        self._is_lost = False
        """There is a checkpoint, and it cannot be read: its pods may run."""
        self._seen = False
        self._digest = b""
        """Of the last answer that was parsed, good or bad."""
        self._unreachable = ""
        self._error: ManifestError | None = None
        self._is_partly = False
        """The error is of some pods of the answer. The others run."""
        self._fetching = Semaphore(1)

    def recover(self) -> None:
        """Load the pods of the last good answer, unless they are another URL's."""
        data = self._checkpoint.load()
        if data is None:
            self._is_lost = os.path.lexists(self._checkpoint.path)
            return
        try:
            saved = msgspec.convert(data, _Saved)
        except msgspec.ValidationError as error:
            self._is_lost = True
            log.warning("cannot use the checkpoint %s: %s; going on without it", self._checkpoint.path, error)
            return
        if saved.place == self._place():
            self._pods, self._recovered = saved.pods, True

    def start(self) -> None:
        """Fetch now, and at every period from now on."""
        period_s = max(LEAST_PERIOD_S, self._actor.settings.http_check_frequency_s)
        self._actor.every(Until(period_s), self.relist, "fetch")

    def resend(self, name: str) -> None:
        """Send all pods to a new pod_workers. The SET also means that the source has been read."""
        if self._seen and name == "pod_workers":
            self._tell("SET", self._pods)

    def names(self) -> tuple[str, ...]:
        """NAMESPACE/NAME of every pod."""
        return policy.names(self._pods)

    def problems(self) -> list[SourceProblem]:
        """The reasons why the present answer is not used."""
        keeps = bool(self._pods)
        found = []
        if self._unreachable:
            found.append(SourceProblem(file=self._shown, problem=self._unreachable, keeps_previous=keeps))
        if (error := self._error) is not None:
            problem = error.problem + error.more()
            keeps = keeps and not self._is_partly
            found.append(
                SourceProblem(
                    file=error.file, line=error.line, field=error.field, problem=problem, keeps_previous=keeps
                )
            )
        return found

    def describe(self) -> dict[str, Any]:
        """State for the console: the URL without secrets, the pods, and problems."""
        return {
            "url": self._shown,
            "seen": self._seen,
            "pods": list(self.names()),
            "problems": [one.problem for one in self.problems()],
        }

    async def relist(self) -> None:
        """Fetch and parse the answer once; returns when that is done."""
        async with self._fetching:
            is_empty = False
            try:
                body = await self._actor.blocking(FETCH_S + FORK_S, fetch, self._url, self._header)
                self._say_unreachable("")
                await self._read(body)
            except (FetchError, SubprocessError, OSError, AskTimeout) as error:
                self._say_unreachable(f"{error}" or type(error).__name__)
                is_empty = isinstance(error, EmptyAnswer) and not self._is_lost
            if not self._seen and (self._recovered or is_empty):
                self._seen = True
                self.resend("pod_workers")

    async def _read(self, body: bytes) -> None:
        """Parse an answer, unless it is the last one again, and take its pods."""
        digest = hashlib.sha256(body).digest()
        if digest == self._digest:
            return
        work = functools.partial(self._parse, body)
        answer = await self._actor.blocking(PARSE_S + FORK_S, run_in_subprocess, work, PARSE_S)
        read = msgspec.msgpack.decode(answer, type=_Read)
        self._digest = digest
        for warning in read.warnings:
            log.warning("%s:%d: %s %s", self._shown, warning.line, warning.field, warning.problem)
        if (more := read.found_warnings - len(read.warnings)) > 0:
            log.warning("%s: %d more warnings", self._shown, more)
        self._error = None
        if read.error is not None:
            self._say_bad(ManifestError(*read.error), is_partly=bool(read.pods))
            if not read.pods:
                return
        await self._take(tuple(map(self._as_seen, read.pods)))

    def _parse(self, body: bytes) -> bytes:
        """Parse an answer; runs in a child process, whose memory it bounds."""
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_PARSE_BYTES, MAX_PARSE_BYTES))
        settings = self._actor.settings
        duplicates: list[ManifestError] = []
        try:
            found = load_answer(self._url, self._shown, body, settings.node_name, duplicates, Allowed.by(settings))
        except ManifestError as error:
            read = _Read(error=_arguments(error))
        else:
            warnings = tuple(warning for one in found for warning in one.warnings)
            left_out = _arguments(*duplicates[:MAX_WARNINGS]) if duplicates else None
            read = _Read(tuple(one.pod for one in found), left_out, warnings[:MAX_WARNINGS], len(warnings))
        return msgspec.msgpack.encode(read)

    def _as_seen(self, pod: Pod) -> Pod:
        """The pod with its source, and the time when this version of it was seen first."""
        known = {one.metadata.uid: one.metadata.annotations.get(CONFIG_SEEN) for one in self._pods}
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"
        return mark_seen(pod, SOURCE, known.get(pod.metadata.uid) or now)

    async def _take(self, pods: tuple[Pod, ...]) -> None:
        changes = policy.merge(self._pods, pods)
        if changes or not self._recovered:
            # Before pod_workers hears of them: else a restart without the server would go back to older pods.
            await self._checkpoint.save(_Saved(self._place(), pods))
        self._pods, self._recovered = pods, True
        if not self._seen:
            self._seen = True
            self.resend("pod_workers")
            return
        self._tell("REMOVE", changes.removed)
        self._tell("ADD", changes.added)
        self._tell("UPDATE", changes.updated)
        self._tell("RECONCILE", changes.reconciled)

    def _say_unreachable(self, problem: str) -> None:
        if problem and problem != self._unreachable:
            log.error("cannot read pods of %s: %s; the pods known so far keep running", self._shown, problem)
        elif self._unreachable and not problem:
            log.info("can read pods of %s again", self._shown)
        self._unreachable = problem

    def _say_bad(self, error: ManifestError, *, is_partly: bool) -> None:
        self._error, self._is_partly = error, is_partly
        log.error("%s%s", error, "" if is_partly else "; the pods known so far keep running")
        message = f"Error validating pod from {SOURCE}, ignoring: {error}"
        Recorder(self._actor.peer("events")).node("Warning", "FailedValidation", message)

    # The checkpoint

    def _place(self) -> str:
        """A digest, because the URL may have a secret."""
        return hashlib.sha256(f"{self._actor.settings.node_name}\n{self._url}".encode()).hexdigest()


def _arguments(first: ManifestError, *others: ManifestError) -> tuple[str, int, str, str, tuple[str, ...]]:
    """The arguments of a ManifestError with all these problems, as the child sends them."""
    more = tuple(f"line {one.line}: {one.field}: {one.problem}" for one in others)
    return first.file, first.line, first.field, first.problem, (*first.others, *more)
