"""The source of pods that is a directory (or a file) of manifests: read, judged, merged, told to pod_workers.

When files are read is `actors._files`; what is wrong and what changed is decided in `policy.py`, `static_pods.py` and
below. Every start reads all files again, and pods keep their UIDs because those are hashes of the files. On disk is
only the last good pod of each file, for files that are broken at a start.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from actors._base import Actor, Semaphore
from actors._events.recorder import Recorder
from actors._files.problems import FileError
from actors._files.reading import Reader, divided, longest_s
from actors._files.scan import Kind, Listing, Stamp
from actors._files.source import FileSource
from actors._host.files import checkpoint, paths
from actors.config import policy
from actors.config.pods.document import MAX_BYTES
from actors.config.pods.static_pods import load, mark_seen
from actors.config.policy import FileState, Resolved
from actors.config.validation.problems import ManifestError, ManifestWarning
from proto.pods.config import SourceProblem
from proto.v1 import Pod
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

SOURCE = "file"
CHECKPOINT_VERSION = 1
SAVE_TIMEOUT_S = 2.0
"""A disk that does not answer holds up one pool thread, and nobody else."""

Tell = Callable[[Any, tuple[Pod, ...]], None]
"""An operation of `PodUpdate` and its pods, to pod_workers."""


class _Read(NamedTuple):
    """What one file gave: its pod, or the arguments of a ManifestError; and what its author may want to know."""

    pod: Pod | None = None
    error: tuple[str, int, str, str, tuple[str, ...]] | None = None
    warnings: tuple[ManifestWarning, ...] = ()


class ManifestPods:
    """Used in the actor's mailbox thread. Without a path it has been seen at once, and has no pods."""

    def __init__(self, actor: Actor, tell: Tell) -> None:
        self._actor = actor
        self._tell = tell
        self._path = self._actor.settings.pod_manifest_path
        kind = Kind(MAX_BYTES, ManifestError)
        meanwhile = "the pods known so far keep running"
        self._source = FileSource(actor, self._path, kind, self._take, meanwhile) if self._path else None
        self._files: dict[str, FileState] = {}
        self._reader = Reader(_Read, self._load, lambda path, why: _Read(error=(path, 0, "", why, ())))
        self._resolved = Resolved({}, {})
        self._seen = False
        self._writing_checkpoint = Semaphore(1)

    def recover(self) -> None:
        """The last good pod of every file: one that is broken or half written keeps its pod over our death, too."""
        for path, data in (checkpoint.load(self._checkpoint_path(), CHECKPOINT_VERSION) or {}).items():
            try:
                self._files[path] = FileState(msgspec.convert(data, Pod), None)
            except msgspec.ValidationError as error:
                log.warning("leaving %s out of %s: %s", path, self._checkpoint_path(), error)

    def start(self) -> None:
        """Read every manifest now, and what changes from now on."""
        if self._source is None:
            self._seen = True
        else:
            self._source.start(self._actor.settings.file_check_frequency_s)

    def resend(self) -> None:
        """Tell a new pod_workers everything, which also says that the source has been seen."""
        if self._seen:
            self._tell("SET", tuple(self._resolved.pods.values()))

    async def relist(self) -> None:
        """Returns when the files have been read."""
        if self._source is not None:
            await self._source.relist()

    def names(self) -> tuple[str, ...]:
        """NAMESPACE/NAME of every pod."""
        return tuple(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in self._resolved.pods.values())

    def problems(self) -> list[SourceProblem]:
        """What is wrong with which file, and with the directory itself."""
        problems = [self._described(error) for error in self._resolved.errors.values()]
        if self._source_problem:
            keeps = bool(self._resolved.pods)
            problems.append(SourceProblem(file=self._path, problem=self._source_problem, keeps_previous=keeps))
        return problems

    def describe(self) -> dict[str, Any]:
        """What a console shows."""
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

    def _described(self, error: FileError) -> SourceProblem:
        return SourceProblem(
            file=error.file,
            line=error.line,
            field=error.field,
            problem=error.problem + error.more(),
            keeps_previous=self._files[error.file].pod is not None and self._files[error.file].error is not None,
        )

    # Merging

    async def _take(self, listing: Listing) -> None:
        """Raises OSError and AskTimeout where nothing could be read; then nothing has changed."""
        read = await self._read(listing)
        files = {
            path: state for path, state in self._files.items() if path in listing.stamps or path in listing.held_back
        }
        for path, one in read.items():
            files[path] = policy.next_state(files.get(path), one)
        self._files = files
        resolved = policy.resolve(files)
        self._say_problems(resolved)
        named_again = {state.pod.metadata.uid for path in listing.again if (state := files[path]).pod is not None}
        changes = policy.merge(self._resolved.pods.values(), resolved.pods.values(), named_again)
        self._resolved = resolved
        if not self._seen:
            self._seen = True
            self.resend()
        else:
            self._tell("REMOVE", changes.removed)
            self._tell("ADD", changes.added)
            self._tell("UPDATE", changes.updated)
            self._tell("RECONCILE", changes.reconciled)
        if changes:
            self._actor.spawn(self._save(), "save")

    def _checkpoint_path(self) -> str:
        return os.path.join(paths.checkpoints_dir(self._actor.settings.root_dir), "config.json")

    async def _save(self) -> None:
        async with self._writing_checkpoint:
            pods = {path: state.pod for path, state in self._files.items() if state.pod is not None}
            save = functools.partial(checkpoint.save, sync=False)
            try:
                await self._actor.blocking(SAVE_TIMEOUT_S, save, self._checkpoint_path(), CHECKPOINT_VERSION, pods)
            except (OSError, AskTimeout) as error:
                log.error(
                    "cannot write %s: %s; a broken manifest would end its pod at a restart",
                    self._checkpoint_path(),
                    error,
                )

    async def _read(self, listing: Listing) -> dict[str, Pod | FileError]:
        contents, errors = divided(listing.contents)
        read: dict[str, Pod | FileError] = {**errors}
        if contents:
            for path, one in (await self._actor.blocking(longest_s(contents), self._reader.read, contents)).items():
                read[path] = self._result(path, one, listing.stamps[path])
        return read

    def _load(self, path: str, content: bytes) -> _Read:
        """In a process of its own."""
        settings = self._actor.settings
        try:
            loaded = load(path, content, settings.node_name, objects_dir=bool(settings.objects_dir))
        except ManifestError as error:
            return _Read(error=(error.file, error.line, error.field, error.problem, error.others))
        return _Read(loaded.pod, None, loaded.warnings)

    def _result(self, path: str, read: _Read, stamp: Stamp) -> Pod | FileError:
        for warning in read.warnings:
            log.warning("%s:%d: %s %s", path, warning.line, warning.field, warning.problem)
        if read.pod is None:
            assert read.error is not None
            return ManifestError(*read.error)
        # The file's own time of change, not ours: the same after every restart of this actor.
        return mark_seen(read.pod, SOURCE, _rfc3339(stamp.ctime_ns))

    def _say_problems(self, resolved: Resolved) -> None:
        for path, error in resolved.errors.items():
            if str(error) != str(self._resolved.errors.get(path)):
                keeps = "; the pod of its last good version keeps running" if self._files[path].pod is not None else ""
                log.error("%s%s", error, keeps if self._files[path].error is not None else "")
                self._record(error, self._files[path].pod)

    def _record(self, error: FileError, pod: Pod | None) -> None:
        """Of the pod whose last good version runs; of the node where the file has given none yet."""
        events = Recorder(self._actor.peer("events"))
        if pod is None:
            events.node("Warning", "FailedValidation", f"Error validating pod from {SOURCE}, ignoring: {error}")
            return
        meta = pod.metadata
        who = f"{meta.name}_{meta.namespace}({meta.uid})"
        events.pod(pod, "Warning", "FailedValidation", f"Error validating pod {who} from {SOURCE}, ignoring: {error}")


def _rfc3339(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"
