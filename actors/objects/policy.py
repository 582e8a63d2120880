"""Decisions of the objects actor: the objects of all files together, their changes, and their users. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from actors._files.problems import FileError
from actors.objects.parsing.load import File, Loaded, described
from actors.objects.parsing.problems import ObjectsError
from proto.pods.objects import ApiObject, ObjectRef, PodObjects


class FileState(NamedTuple):
    """State of one file: the objects of its last good version, and the error of the present version."""

    objects: tuple[Loaded, ...] | None
    error: FileError | None
    changed: float = 0.0
    """Unix seconds of the last good version's change."""


def next_state(path: str, previous: FileState | None, read: File | FileError, changed: float) -> FileState:
    """State of a file after a reading: a bad version keeps the objects of the last good one."""
    if previous is None or previous.objects is None:
        return FileState(None, read) if isinstance(read, FileError) else FileState(read.objects, None, changed)
    if isinstance(read, FileError):
        return previous._replace(error=read)
    refused = _changed_immutables(path, previous.objects, read.objects)
    return previous._replace(error=refused) if refused is not None else FileState(read.objects, None, changed)


def _changed_immutables(path: str, before: Iterable[Loaded], after: Iterable[Loaded]) -> ObjectsError | None:
    """The error of a changed immutable object; None without one. The API server refuses such a change, too."""
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
    """File, line and change time (Unix seconds) of an object."""

    file: str
    line: int
    changed: float


class Resolved(NamedTuple):
    """All objects with their places, and the errors of files by path."""

    objects: dict[ObjectRef, ApiObject]
    places: dict[ObjectRef, Place]
    errors: dict[str, FileError]


def resolve(files: Mapping[str, FileState]) -> Resolved:
    """Objects of all files. When two files define the same object, the first path wins and the other is an error."""
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
    """References of objects that were added, removed or changed."""
    return tuple(sorted(ref for ref in before.keys() | after.keys() if _version(before, ref) != _version(after, ref)))


def _version(objects: Mapping[ObjectRef, ApiObject], ref: ObjectRef) -> str | None:
    found = objects.get(ref)
    return found.resource_version if found is not None else None


def select(
    objects: Mapping[ObjectRef, ApiObject], refs: Iterable[ObjectRef]
) -> tuple[list[ApiObject], list[ObjectRef]]:
    """(found objects, missing references). A reference without name stands for all objects of its kind."""
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
    """Answer of an API server to requested objects; an object in neither field does not exist."""

    found: dict[ObjectRef, ApiObject] = field(default_factory=dict)
    failed: dict[ObjectRef, str] = field(default_factory=dict)
    """Errors of objects that cannot be read."""


def fitting(objects: Iterable[ApiObject], max_bytes: int) -> tuple[tuple[ApiObject, ...], tuple[ObjectRef, ...]]:
    """(objects that fit into one answer, at least one; references of the rest)."""
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
    """References of pods to objects, by pod UID."""

    def __init__(self) -> None:
        self._pods: dict[str, frozenset[ObjectRef]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def set(self, pods: Iterable[PodObjects], *, full: bool) -> frozenset[ObjectRef]:
        """Update the references of pods; `full` replaces all. Return the references that a pod did not have before."""
        new: set[ObjectRef] = set()
        before = self._pods
        self._pods = {} if full else before
        for pod in pods:
            new.update(frozenset(pod.refs) - before.get(pod.pod_uid, frozenset()))
            if pod.refs:
                self._pods[pod.pod_uid] = frozenset(pod.refs)
            else:
                self._pods.pop(pod.pod_uid, None)
        return frozenset(new)

    def refs(self) -> frozenset[ObjectRef]:
        """All references."""
        return frozenset[ObjectRef]().union(*self._pods.values())

    def used(self, refs: Iterable[ObjectRef]) -> tuple[ObjectRef, ...]:
        """The subset of `refs` that pods use."""
        return tuple(ref for ref in refs if self.count(ref))

    def count(self, ref: ObjectRef) -> int:
        """Number of pods that refer to it."""
        every = ObjectRef(kind=ref.kind, namespace=ref.namespace)
        return sum(1 for refs in self._pods.values() if ref in refs or every in refs)
