"""Objects from a directory of YAML and JSON files, for pods without an API server.

The directory is always watched; configMapAndSecretChangeDetectionStrategy concerns the API server only. Files are read
in another thread and parsed in a short-lived process, one scan at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from actors._base import Actor
from actors._files.problems import FileError
from actors._files.reading import Reader, divided, longest_s
from actors._files.scan import Kind, Listing
from actors._files.source import FileSource
from actors.objects import policy
from actors.objects.local import keep
from actors.objects.parsing.load import MAX_BYTES, File, load
from actors.objects.parsing.problems import ObjectsError
from actors.objects.policy import FileState, Resolved
from actors.objects.source import Source
from proto.pods.objects import ApiObject, ObjectProblem, ObjectRef, ObjectRow
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

KEEP_S = 2.0

Changed = Callable[[tuple[ObjectRef, ...] | None], None]


class _Read(NamedTuple):
    """Result of one file: its objects, or the arguments of an ObjectsError."""

    file: File = File(())
    error: tuple[str, int, str, str, tuple[str, ...]] | None = None
    parsed: bool = True
    """False if the parser took too long, or was killed."""


class DirectorySource(Source):
    """A source of objects, see `source.Source`."""

    def __init__(self, actor: Actor, path: str, run_dir: str, period_s: float, changed: Changed) -> None:
        self.name = path
        self.seen = False
        self._actor = actor
        self._run_dir = run_dir
        self._period_s = period_s
        self._changed = changed
        kind = Kind(MAX_BYTES, ObjectsError)
        self._source = FileSource(actor, path, kind, self._take, "the objects known so far stand")
        self._files: dict[str, FileState] = {}
        self._reader = Reader(_Read, _load, lambda path, why: _Read(error=(path, 0, "", why, ()), parsed=False))
        self._resolved = Resolved({}, {}, {})

    @property
    def objects(self) -> Mapping[ObjectRef, ApiObject]:
        """Present objects by reference."""
        return self._resolved.objects

    async def recover(self) -> None:
        """Restore the last good objects of files that were broken when this actor was killed."""
        try:
            self._files = await self._actor.blocking(KEEP_S, keep.load, self._run_dir)
        except (OSError, AskTimeout) as error:
            log.warning("cannot read %s in %s: %s; broken files have no objects", keep.NAME, self._run_dir, error)

    def start(self) -> None:
        """Read the directory and follow it."""
        self._source.start(self._period_s)

    async def _take(self, listing: Listing) -> None:
        # Raises OSError and AskTimeout before any change of state.
        read = await self._read(listing)
        files = {
            path: state for path, state in self._files.items() if path in listing.stamps or path in listing.held_back
        }
        for path, one in read.items():
            files[path] = policy.next_state(path, files.get(path), one, listing.stamps[path].mtime_ns / 1e9)
            if isinstance(one, File):
                for line, field, problem in one.warnings:
                    log.warning("%s:%d: %s %s", path, line, field, problem)
        self._files = files
        resolved = policy.resolve(files)
        self._say_problems(resolved)
        differing = policy.changes(self._resolved.objects, resolved.objects)
        errors_before, self._resolved = self._resolved.errors, resolved
        if not self.seen:
            self.seen = True
            self._changed(None)
        elif differing:
            self._changed(differing)
        if errors_before or resolved.errors:
            await self._keep()

    async def _read(self, listing: Listing) -> dict[str, File | FileError]:
        contents, errors = divided(listing.contents)
        read: dict[str, File | FileError] = {**errors}
        if contents:
            for path, one in (await self._actor.blocking(longest_s(contents), self._reader.read, contents)).items():
                read[path] = ObjectsError(*one.error) if one.error is not None else one.file
                if not one.parsed:
                    self._source.read_again(path)
        return read

    async def _keep(self) -> None:
        try:
            await self._actor.blocking(KEEP_S, keep.save, self._run_dir, dict(self._files))
        except (OSError, AskTimeout) as error:
            log.error(
                "cannot write %s in %s: %s; broken files lose their objects at a restart",
                keep.NAME,
                self._run_dir,
                error,
            )

    def _say_problems(self, resolved: Resolved) -> None:
        for path, error in resolved.errors.items():
            if str(error) != str(self._resolved.errors.get(path)):
                keeps = "; the objects of its last good version stand" if self._keeps(path) else ""
                log.error("%s%s", error, keeps)

    def _keeps(self, path: str) -> bool:
        state = self._files.get(path)
        return state is not None and state.error is not None and state.objects is not None

    def rows(self) -> list[ObjectRow]:
        """All objects, without data."""
        return [
            ObjectRow(
                ref=ref,
                file=place.file,
                line=place.line,
                changed=place.changed,
                keys=tuple(sorted(self.objects[ref].data)),
                immutable=self.objects[ref].immutable,
                secret_type=self.objects[ref].secret_type,
            )
            for ref, place in sorted(self._resolved.places.items())
        ]

    def problems(self) -> tuple[ObjectProblem, ...]:
        """Problems of the files, and of the directory itself."""
        found = [
            ObjectProblem(
                file=error.file,
                line=error.line,
                field=error.field,
                problem=error.problem + error.more(),
                keeps_previous=self._keeps(path),
            )
            for path, error in self._resolved.errors.items()
        ]
        if self._source.problem:
            keeps = bool(self.objects)
            found.append(ObjectProblem(file=self.name, problem=self._source.problem, keeps_previous=keeps))
        return tuple(found)


def _load(path: str, content: bytes) -> _Read:
    # Runs in the parser process.
    try:
        return _Read(load(path, content))
    except ObjectsError as error:
        return _Read(error=(error.file, error.line, error.field, error.problem, error.others))
