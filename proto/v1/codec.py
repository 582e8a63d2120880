"""Converts Kubernetes API records to and from JSON and plain mappings.

Types are checked. Unknown fields are ignored, as by the kubelet; the reader of manifests reports them.
"""

from typing import Any, TypeVar

import msgspec

from proto.common import untrusted
from proto.v1.scalars.base import Record

T = TypeVar("T", bound=Record)

_encoder = msgspec.json.Encoder()


def to_json(record: Record) -> bytes:
    """Encode as compact JSON; fields in declaration order, absent ones left out."""
    return _encoder.encode(record)


def from_json(kind: type[T], data: bytes | str) -> T:
    """Decode JSON; raises msgspec.ValidationError with the path of the first wrong field, or msgspec.DecodeError."""
    return untrusted.decode_json(data, kind)


def to_dict(record: Record) -> dict[str, Any]:
    """Return the JSON form as plain dicts, lists and scalars."""
    plain: dict[str, Any] = msgspec.json.decode(_encoder.encode(record))
    return plain


def from_dict(kind: type[T], data: dict[str, Any]) -> T:
    """Build a record from its JSON form; raises msgspec.ValidationError with the path of the first wrong field."""
    return msgspec.convert(data, kind)
