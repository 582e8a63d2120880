"""Parses one file of `--objects-dir` into API objects, or into one error with line and field of every problem.

Checks YAML documents, v1 lists, apiVersion and kind, types, names, and the data of ConfigMaps and Secrets. `policy.py`
decides about all files of the directory together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import msgspec

from actors._files import typed
from actors._files.unknown import unknown_fields
from actors.objects.parsing import data as data_of
from actors.objects.parsing.kinds import (
    DEFAULT_NAMESPACE,
    KINDS,
    LIST_KINDS,
    name_problem,
    namespace_problem,
    supported,
)
from actors.objects.parsing.problems import ObjectsError
from proto import v1
from proto.pods.objects import ApiObject, ObjectRef
from proto.schema import document
from proto.schema.document import Document, DocumentError, Limits
from proto.schema.fieldpath import Path, field_text
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim
from proto.v1.meta import ObjectMeta
from proto.v1.scalars import quantity

MAX_BYTES = 16 * 1024 * 1024
"""Limit of a file, with room for several objects of the largest size in base64."""
_LIMITS = Limits(MAX_BYTES, "a file of objects", "API objects")


class Loaded(NamedTuple):
    """One object and its first line."""

    object: ApiObject
    line: int


class File(NamedTuple):
    """Objects of a valid file, and warnings as (line, field, problem)."""

    objects: tuple[Loaded, ...]
    warnings: tuple[tuple[int, str, str], ...] = ()


class _Item(NamedTuple):
    """One object in a document: its place there and its values."""

    document: Document
    path: Path
    value: Any

    def line(self, path: Path = ()) -> int:
        return self.document.line((*self.path, *path))

    def field(self, path: Path = ()) -> str:
        return field_text((*self.path, *path))


class _Wrong(Exception):
    """One object has problems: (path in the object, problem)."""

    def __init__(self, *problems: tuple[Path, str]) -> None:
        super().__init__()
        self.problems = problems


def load(path: str, content: bytes) -> File:
    """Objects of a file. Raises ObjectsError."""
    try:
        documents = document.parse_all(content, _LIMITS)
    except DocumentError as error:
        raise ObjectsError(path, error.line, field_text(error.path), error.problem) from error
    loaded: dict[ObjectRef, Loaded] = {}
    warnings: list[tuple[int, str, str]] = []
    problems: list[tuple[int, str, str]] = []
    for item in (item for one in documents for item in _items(one, (), one.value)):
        try:
            found = _object(item)
        except _Wrong as wrong:
            problems += [(item.line(where), item.field(where), problem) for where, problem in wrong.problems]
            continue
        first = loaded.get(found.ref)
        if first is not None:
            problem = f"{described(found.ref)} is defined twice, first on line {first.line}; remove one"
            problems.append((item.line(), item.field(("metadata", "name")), problem))
            continue
        loaded[found.ref] = Loaded(found, item.line())
        warnings += _warnings(item)
    if problems:
        raise _error(path, problems)
    return File(tuple(loaded.values()), tuple(warnings))


def described(ref: ObjectRef) -> str:
    """`Secret default/db`, `RuntimeClass gvisor`."""
    return f"{ref.kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{ref.kind} {ref.name}"


def _error(path: str, problems: list[tuple[int, str, str]]) -> ObjectsError:
    line, field, problem = problems[0]
    others = tuple(
        f"line {line}: {field}: {problem}" if field else f"line {line}: {problem}"
        for line, field, problem in problems[1:]
    )
    return ObjectsError(path, line, field, problem, others)


def _items(whole: Document, path: Path, value: Any) -> Iterator[_Item]:
    """The objects of a document: itself, or the items of a list, also of lists in it."""
    is_list = isinstance(value, dict) and isinstance(value.get("kind"), str) and value["kind"] in LIST_KINDS
    items = value.get("items") if is_list else None
    if isinstance(items, list):
        for index, item in enumerate(items):
            yield from _items(whole, (*path, "items", index), item)
    elif not (is_list and items is None):
        yield _Item(whole, path, value)


def _object(item: _Item) -> ApiObject:
    """Raises _Wrong."""
    kind = _kind(item.value)
    try:
        record = typed.convert(KINDS[kind].record, item.value)
    except typed.WrongType as error:
        raise _Wrong((error.path, error.problem)) from None  # the cause may hold a value
    metadata: ObjectMeta = record.metadata  # type: ignore[attr-defined]  # every kind has one
    problems: list[tuple[Path, str]] = [
        (("metadata", field), problem)
        for field, problem in (
            ("name", name_problem(kind, metadata.name)),
            ("namespace", namespace_problem(kind, metadata.namespace)),
        )
        if problem
    ]
    namespace = (metadata.namespace or DEFAULT_NAMESPACE) if KINDS[kind].namespaced else ""
    ref = ObjectRef(kind=kind, namespace=namespace, name=metadata.name)
    if isinstance(record, v1.ConfigMap | v1.Secret):
        return _with_data(ref, record, problems)
    problems += _quantity_problems(record)
    if kind == "RuntimeClass" and not item.value.get("handler"):
        problems.append((("handler",), "Required value"))
    if problems:
        raise _Wrong(*problems)
    plain = typed.without_nulls(item.value)
    plain["metadata"]["namespace"] = namespace
    return ApiObject(ref=ref, resource_version=content_version(plain), document=plain)


def _quantity_problems(record: Any) -> list[tuple[Path, str]]:
    """Sizes of volumes and claims that are not quantities."""
    amounts: dict[Path, v1.ResourceList] = {}
    if isinstance(record, PersistentVolume):
        amounts["spec", "capacity"] = record.spec.capacity
    elif isinstance(record, PersistentVolumeClaim):
        amounts["spec", "resources", "requests"] = record.spec.resources.requests
        amounts["status", "capacity"] = record.status.capacity
        amounts["status", "allocatedResources"] = record.status.allocated_resources
    found: list[tuple[Path, str]] = []
    for path, resources in amounts.items():
        for name, amount in resources.items():
            try:
                quantity.parse(amount)
            except quantity.QuantityError as error:
                found.append(((*path, name), f"Invalid value: {error}"))
    return found


def _with_data(ref: ObjectRef, record: v1.ConfigMap | v1.Secret, problems: list[tuple[Path, str]]) -> ApiObject:
    is_secret = isinstance(record, v1.Secret)
    data = data_of.secret_data(record) if isinstance(record, v1.Secret) else data_of.config_map_data(record)
    if problems or data.problems:
        raise _Wrong(*problems, *data.problems)
    secret_type = (record.type or data_of.DEFAULT_SECRET_TYPE) if isinstance(record, v1.Secret) else ""
    immutable = bool(record.immutable)
    return ApiObject(
        ref=ref,
        resource_version=content_version([sorted(data.values.items()), secret_type, immutable]),
        data=data.values,
        binary_keys=() if is_secret else tuple(record.binary_data),  # type: ignore[union-attr]
        secret_type=secret_type,
        immutable=immutable,
        uid=(record.metadata.uid or "") if is_secret else "",
    )


def _kind(value: Any) -> str:
    """The kind of an object. Raises _Wrong for an unsupported kind or apiVersion."""
    if not isinstance(value, dict):
        raise _Wrong(((), "must be a mapping with apiVersion, kind and metadata"))
    kind = value.get("kind")
    if kind is None:
        raise _Wrong((("kind",), f"Required value: supported are {supported()}"))
    if not isinstance(kind, str) or kind not in KINDS:
        where = "; pods go into the manifest directory" if kind in ("Pod", "PodList") else ""
        raise _Wrong((("kind",), f"Unsupported value: {typed.shown(kind)}: supported are {supported()}{where}"))
    wanted, found = KINDS[kind].api_version, value.get("apiVersion")
    if found != wanted:
        how = "Required value: must be" if found is None else f"{typed.shown(found)}: must be"
        raise _Wrong((("apiVersion",), f"{how} {wanted} for a {kind}"))
    return str(kind)


def _warnings(item: _Item) -> Iterator[tuple[int, str, str]]:
    kind = item.value["kind"]
    if kind in ("PersistentVolume", "PersistentVolumeClaim", "ResourceClaim", "Service"):
        return  # their records have only the fields that a node reads
    for path, problem in unknown_fields(KINDS[kind].record, item.value):
        yield item.line(path), item.field(path), problem


def content_version(content: Any) -> str:
    """A resource version made of the content. Its key changes with each boot, so that content cannot be guessed."""
    encoded = msgspec.msgpack.encode(content)
    return hashlib.blake2b(encoded, key=_key(), digest_size=8).hexdigest()


@cache
def _key() -> bytes:
    try:
        return FilePath("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:64]
    except OSError:
        return b"nodevisor"
