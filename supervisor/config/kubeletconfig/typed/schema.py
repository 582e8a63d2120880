"""The schema of the configuration: JSON path, attribute and kind of each field, read from the structs.

The decoder, the encoder, defaults and the field table use it. It is built at the first use.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from supervisor.config.kubeletconfig.typed.base import (
    ConfigStruct,
    Duration,
    Int32,
    Int64,
    Quantity,
    TimeOrDuration,
    UInt32,
)
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

_SCALARS: dict[Any, str] = {
    bool: "bool",
    str: "string",
    float: "float64",
    Int32: "int32",
    UInt32: "uint32",
    Int64: "int64",
    Duration: "duration",
    TimeOrDuration: "time-or-duration",
    Quantity: "quantity",
}


class Kind(NamedTuple):
    """The type of a value: a scalar's name, `list` or `map` of `item`, or `struct` of class `struct`."""

    name: str
    item: Kind | None = None
    struct: type[ConfigStruct] | None = None

    def __str__(self) -> str:
        if self.name == "list":
            return f"list of {self.item}"
        return f"map of {self.item}" if self.name == "map" else self.name


class Field(NamedTuple):
    """One field of a struct."""

    name: str
    """The published JSON name."""
    attribute: str
    kind: Kind
    nullable: bool
    """An absent value is None, which differs from the zero value."""
    default: Any


class Leaf(NamedTuple):
    """A field that is not a struct, with its path from the top."""

    path: str
    """JSON names joined with dots."""
    attributes: tuple[str, ...]
    field: Field


@lru_cache(maxsize=64)
def fields(struct: type[ConfigStruct]) -> dict[str, Field]:
    """The fields of a struct by JSON name, in the published order."""
    hints = get_type_hints(struct)
    found = {}
    for described in msgspec.structs.fields(struct):
        kind, nullable = _kind(hints[described.name])
        found[described.encode_name] = Field(
            described.encode_name, described.name, kind, nullable, getattr(struct(), described.name)
        )
    return found


@lru_cache(maxsize=1)
def leaves() -> dict[str, Leaf]:
    """All fields of KubeletConfiguration by path, without structs, apiVersion and kind."""
    found = {leaf.path: leaf for leaf in _walk(KubeletConfiguration, "", ())}
    del found["apiVersion"], found["kind"]
    return found


def _walk(struct: type[ConfigStruct], prefix: str, attributes: tuple[str, ...]) -> Iterator[Leaf]:
    for name, field in fields(struct).items():
        here = (*attributes, field.attribute)
        if field.kind.struct is not None:
            yield from _walk(field.kind.struct, f"{prefix}{name}.", here)
        else:
            yield Leaf(f"{prefix}{name}", here, field)


def _kind(hint: Any) -> tuple[Kind, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        inner = next(part for part in get_args(hint) if part is not type(None))
        return _kind(inner)[0], True
    if get_origin(hint) is tuple:
        return Kind("list", item=_kind(get_args(hint)[0])[0]), False
    if get_origin(hint) is dict:
        return Kind("map", item=_kind(get_args(hint)[1])[0]), False
    if isinstance(hint, type) and issubclass(hint, ConfigStruct):
        return Kind("struct", struct=hint), False
    return Kind(_SCALARS[hint]), False


def get(config: ConfigStruct, path: str) -> Any:
    """The value of a field by its path (`authentication.webhook.enabled`); None when a parent struct is absent."""
    value: Any = config
    for name in path.split("."):
        if value is None:
            return None
        struct: type[ConfigStruct] = type(value)
        value = getattr(value, fields(struct)[name].attribute)
    return value


def replace(config: KubeletConfiguration, path: str, value: Any) -> KubeletConfiguration:
    """The configuration with a changed field. Absent parent structs are created."""
    changed: KubeletConfiguration = _replace(config, KubeletConfiguration, path.split("."), value)
    return changed


def _replace(config: Any, struct: type[ConfigStruct], names: list[str], value: Any) -> Any:
    base = struct() if config is None else config
    field = fields(struct)[names[0]]
    if len(names) > 1:
        assert field.kind.struct is not None, f"{names[0]} has no fields"
        value = _replace(getattr(base, field.attribute), field.kind.struct, names[1:], value)
    return msgspec.structs.replace(base, **{field.attribute: value})
