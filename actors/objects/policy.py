"""Decisions of the objects actor: what the files say together, what changed, and who is to hear of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from actors._files.problems import FileError
from actors.objects.local.load import File, Loaded, described
from actors.objects.problems import ObjectsError
from proto.pods.objects import ApiObject, ObjectRef, PodObjects


class FileState(NamedTuple):
    """What is known of one file: the objects of its last good version, and what is wrong with it now."""

    objects: tuple[Loaded, ...] | None
    error: FileError | None
    changed: float = 0.0
    """Unix seconds; of the version that stands."""


def next_state(path: str, previous: FileState | None, read: File | FileError, changed: float) -> FileState:
    """A file's state after it was read: a bad version keeps the objects of the last good one."""
    if previous is None or previous.objects is None:
        return FileState(None, read) if isinstance(read, FileError) else FileState(read.objects, None, changed)
    if isinstance(read, FileError):
        return previous._replace(error=read)
    refused = _changed_immutables(path, previous.objects, read.objects)
    return previous._replace(error=refused) if refused is not None else FileState(read.objects, None, changed)


def _changed_immutables(path: str, before: Iterable[Loaded], after: Iterable[Loaded]) -> ObjectsError | None:
    """What the API server refuses too: an immutable object that is not the same any more, or not immutable."""
    fixed = {one.object.ref: one.object.resource_version for one in before if one.object.immutable}
    for loaded in after:
        version = fixed.get(loaded.object.ref)
        if version is not None and version != loaded.object.resource_version:
            problem = (
                f"Forbidden: {described(loaded.object.ref)} is immutable and cannot be changed; "
                "to replace it, remove it from the file first"
            )
            return ObjectsError(path, loaded.line, "immutable", problem)
    return None


class Place(NamedTuple):
    """Where an object is."""

    file: str
    line: int
    changed: float


class Resolved(NamedTuple):
    """Every object with its place, and the errors of the files, by path."""

    objects: dict[ObjectRef, ApiObject]
    places: dict[ObjectRef, Place]
    errors: dict[str, FileError]


def resolve(files: Mapping[str, FileState]) -> Resolved:
    """The objects of all files; of two files with the same object the first by path has it and the other is wrong."""
    resolved = Resolved({}, {}, {})
    for path, state in sorted(files.items()):
        if state.error is not None:
            resolved.errors[path] = state.error
        for loaded in state.objects or ():
            ref = loaded.object.ref
            taken = resolved.places.get(ref)
            if taken is None:
                resolved.objects[ref] = loaded.object
                resolved.places[ref] = Place(path, loaded.line, state.changed)
            elif path not in resolved.errors:
                problem = f"{described(ref)} is already defined by {taken.file}:{taken.line}; remove one of them"
                resolved.errors[path] = ObjectsError(path, loaded.line, "metadata.name", problem)
    return resolved


def changes(before: Mapping[ObjectRef, ApiObject], after: Mapping[ObjectRef, ApiObject]) -> tuple[ObjectRef, ...]:
    """What came, went or has another content."""
    return tuple(sorted(ref for ref in before.keys() | after.keys() if _version(before, ref) != _version(after, ref)))


def _version(objects: Mapping[ObjectRef, ApiObject], ref: ObjectRef) -> str | None:
    found = objects.get(ref)
    return found.resource_version if found is not None else None


def select(
    objects: Mapping[ObjectRef, ApiObject], refs: Iterable[ObjectRef]
) -> tuple[list[ApiObject], list[ObjectRef]]:
    """The objects meant, each once, and the refs of which there is none. A ref without name means all of its kind."""
    found: dict[ObjectRef, ApiObject] = {}
    missing: dict[ObjectRef, None] = {}
    for ref in refs:
        if not ref.name:
            found.update(
                (one, has) for one, has in objects.items() if (one.kind, one.namespace) == (ref.kind, ref.namespace)
            )
        elif ref in objects:
            found[ref] = objects[ref]
        else:
            missing[ref] = None
    return list(found.values()), list(missing)


@dataclass
class Answer:
    """What an API server said of the objects it was asked for; of one that is in neither, that it is not there."""

    found: dict[ObjectRef, ApiObject] = field(default_factory=dict)
    failed: dict[ObjectRef, str] = field(default_factory=dict)
    """Why nobody can say."""


def fitting(objects: Iterable[ApiObject], max_bytes: int) -> tuple[tuple[ApiObject, ...], tuple[ObjectRef, ...]]:
    """What goes into one answer, at least one object, and the refs of the rest."""
    taken: list[ApiObject] = []
    left: list[ObjectRef] = []
    size = 0
    for one in objects:
        size += sum(len(key) + len(value) for key, value in one.data.items())
        if taken and size > max_bytes:
            left.append(one.ref)
        else:
            taken.append(one)
    return tuple(taken), tuple(left)


class Users:
    """Which pods refer to which objects."""

    def __init__(self) -> None:
        self._pods: dict[str, frozenset[ObjectRef]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def set(self, pods: Iterable[PodObjects], *, full: bool) -> None:
        """Take in what pod_workers says."""
        if full:
            self._pods.clear()
        for pod in pods:
            if pod.refs:
                self._pods[pod.pod_uid] = frozenset(pod.refs)
            else:
                self._pods.pop(pod.pod_uid, None)

    def refs(self) -> frozenset[ObjectRef]:
        """Everything that any pod refers to."""
        return frozenset[ObjectRef]().union(*self._pods.values())

    def used(self, refs: Iterable[ObjectRef]) -> tuple[ObjectRef, ...]:
        """Those of `refs` that a pod refers to."""
        return tuple(ref for ref in refs if self.count(ref))

    def count(self, ref: ObjectRef) -> int:
        """How many pods refer to it."""
        every = ObjectRef(kind=ref.kind, namespace=ref.namespace)
        return sum(1 for refs in self._pods.values() if ref in refs or every in refs)
