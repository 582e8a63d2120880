"""A directory (or a file) of manifests as a source of pods: reads and merges them and sends changes to pod_workers.

`actors._files` decides when files are read; `policy.py` and `pods/static_pods.py` find errors and changes. Every start
reads all files again. Pods keep their UIDs, which are hashes of the files. The checkpoint has the last good pod of each
file, for files that are broken at a start.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from actors._base import Actor, Semaphore
from actors._events.recorder import Recorder
from actors._files.problems import FileError
from actors._files.reading import Reader, divided, longest_s
from actors._files.scan import Kind, Listing, Stamp
from actors._files.source import FileSource
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors.config import policy
from actors.config.pods.manifest import MAX_BYTES
from actors.config.pods.static_pods import Allowed, load, mark_seen
from actors.config.policy import FileState, Resolved
from actors.config.validation.problems import ManifestError, ManifestWarning
from proto.common import rfc3339
from proto.pods.config import SourceProblem
from proto.v1 import Pod

log = logging.getLogger(__name__)

SOURCE = "file"
CHECKPOINT_VERSION = 1
SAVE_TIMEOUT_S = 2.0
"""Deadline of a checkpoint: a disk that hangs blocks one pool thread only."""

Tell = Callable[..., None]
"""An operation of `PodUpdate` and its pods, to pod_workers; for a trace also when they were seen, in Unix ns."""


class _Read(NamedTuple):
    """The result of one file: its pod, or the arguments of a ManifestError; and warnings for its author."""

    pod: Pod | None = None
    error: tuple[str, int, str, str, tuple[str, ...]] | None = None
    warnings: tuple[ManifestWarning, ...] = ()
    parsed: bool = True
    """False if the parser took too long, or was killed."""


class ManifestPods:
    """State: the files with their last good pods. For the actor's thread. Without a path it has no pods."""

    def __init__(self, actor: Actor, tell: Tell) -> None:
        self._actor = actor
        self._tell = tell
        self._path = self._actor.settings.pod_manifest_path
        kind = Kind(MAX_BYTES, ManifestError)
        meanwhile = "the pods known so far keep running"
        self._source = FileSource(actor, self._path, kind, self._take, meanwhile) if self._path else None
        self._files: dict[str, FileState] = {}
        self._reader = Reader(_Read, self._load, lambda path, why: _Read(error=(path, 0, "", why, ()), parsed=False))
        self._resolved = Resolved({}, {})
        self._seen = False
        path = os.path.join(paths.checkpoints_dir(actor.settings.root_dir), "config.json")
        loss = "a manifest that breaks would end its pod at a restart"
        self._checkpoint = CheckpointFile(actor, path, CHECKPOINT_VERSION, loss, deadline_s=SAVE_TIMEOUT_S)
        self._writing_checkpoint = Semaphore(1)

    def recover(self) -> None:
        """Load the last good pod of each file, so that a file that is broken now keeps its pod across a restart."""
        data = self._checkpoint.load()
        try:
            found = {} if data is None else msgspec.convert(data, dict[str, Any])
        except msgspec.ValidationError as error:
            log.warning("cannot use the checkpoint %s: %s; going on without it", self._checkpoint.path, error)
            return
        for path, data in found.items():
            try:
                self._files[path] = FileState(msgspec.convert(data, Pod), None)
            except msgspec.ValidationError as error:
                log.warning("cannot read %s in %s: %s; left out", path, self._checkpoint.path, error)

    def start(self) -> None:
        """Read every manifest now, and each change from now on."""
        if self._source is None:
            self._seen = True
        else:
            self._source.start(self._actor.settings.file_check_frequency_s)

    def resend(self, name: str, seen_ns: int = 0) -> None:
        """Send all pods to a new pod_workers. The SET also means that the source has been read."""
        if self._seen and name == "pod_workers":
            self._tell("SET", tuple(self._resolved.pods.values()), seen_ns)

    async def relist(self) -> None:
        """Read all files again; returns when that is done."""
        if self._source is not None:
            await self._source.relist()

    def names(self) -> tuple[str, ...]:
        """NAMESPACE/NAME of every pod."""
        return policy.names(self._resolved.pods.values())

    def problems(self) -> list[SourceProblem]:
        """The errors of the files and of the directory."""
        problems = [self._to_problem(error) for error in self._resolved.errors.values()]
        if self._source_problem:
            keeps = bool(self._resolved.pods)
            problems.append(SourceProblem(file=self._path, problem=self._source_problem, keeps_previous=keeps))
        return problems

    def describe(self) -> dict[str, Any]:
        """State for the console: the path, counts of files and pods, and problems."""
        return {
            "path": self._path,
            "watched": self._source is not None and self._source.watched,
            "seen": self._seen,
            "files": len(self._files),
            "pods": sorted(self._resolved.pods),
            "problems": [str(error) for error in self._resolved.errors.values()]
            + [self._source_problem] * bool(self._source_problem),
        }

    @property
    def _source_problem(self) -> str:
        return self._source.problem if self._source is not None else ""

    def _to_problem(self, error: FileError) -> SourceProblem:
        return SourceProblem(
            file=error.file,
            line=error.line,
            field=error.field,
            problem=error.problem + error.more(),
            keeps_previous=self._files[error.file].pod is not None and self._files[error.file].error is not None,
        )

    # Merging

    async def _take(self, listing: Listing) -> None:
        """Merge a listing. Raises OSError and AskTimeout, without a change, when nothing could be read."""
        seen_ns = time.time_ns()
        read = await self._read(listing)
        files = {
            path: state for path, state in self._files.items() if path in listing.stamps or path in listing.held_back
        }
        for path, one in read.items():
            files[path] = policy.next_state(files.get(path), one)
        self._files = files
        resolved = policy.resolve(files)
        self._report_problems(resolved)
        named_again = {state.pod.metadata.uid for path in listing.again if (state := files[path]).pod is not None}
        changes = policy.merge(self._resolved.pods.values(), resolved.pods.values(), named_again)
        self._resolved = resolved
        if not self._seen:
            self._seen = True
            self.resend("pod_workers", seen_ns)
        else:
            self._tell("REMOVE", changes.removed)
            self._tell("ADD", changes.added, seen_ns)
            self._tell("UPDATE", changes.updated)
            self._tell("RECONCILE", changes.reconciled)
        if changes:
            self._actor.spawn(self._save(), "save")

    async def _save(self) -> None:
        async with self._writing_checkpoint:
            pods = {path: state.pod for path, state in self._files.items() if state.pod is not None}
            await self._checkpoint.save(pods)

    async def _read(self, listing: Listing) -> dict[str, Pod | FileError]:
        contents, errors = divided(listing.contents)
        read: dict[str, Pod | FileError] = {**errors}
        if contents:
            for path, one in (await self._actor.blocking(longest_s(contents), self._reader.read, contents)).items():
                read[path] = self._result(path, one, listing.stamps[path])
                if not one.parsed and self._source is not None:
                    self._source.read_again(path)
        return read

    def _load(self, path: str, content: bytes) -> _Read:
        """Load one file; runs in a child process."""
        settings = self._actor.settings
        try:
            loaded = load(path, content, settings.node_name, Allowed.by(settings))
        except ManifestError as error:
            return _Read(error=(error.file, error.line, error.field, error.problem, error.others))
        return _Read(loaded.pod, None, loaded.warnings)

    def _result(self, path: str, read: _Read, stamp: Stamp) -> Pod | FileError:
        for warning in read.warnings:
            log.warning("%s:%d: %s %s", path, warning.line, warning.field, warning.problem)
        if read.pod is None:
            assert read.error is not None
            return ManifestError(*read.error)
        # The file's ctime is the same after every restart of this actor.
        return mark_seen(read.pod, SOURCE, rfc3339.nanos(stamp.ctime_ns))

    def _report_problems(self, resolved: Resolved) -> None:
        for path, error in resolved.errors.items():
            if str(error) != str(self._resolved.errors.get(path)):
                keeps = "; the pod of its last good version keeps running" if self._files[path].pod is not None else ""
                log.error("%s%s", error, keeps if self._files[path].error is not None else "")
                self._record(error, self._files[path].pod)

    def _record(self, error: FileError, pod: Pod | None) -> None:
        """Record an event: of the pod whose last good version runs, else of the node."""
        events = Recorder(self._actor.peer("events"))
        if pod is None:
            events.node("Warning", "FailedValidation", f"Error validating pod from {SOURCE}, ignoring: {error}")
            return
        meta = pod.metadata
        who = f"{meta.name}_{meta.namespace}({meta.uid})"
        events.pod(pod, "Warning", "FailedValidation", f"Error validating pod {who} from {SOURCE}, ignoring: {error}")
