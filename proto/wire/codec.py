"""Encodes messages to frames and decodes them, with all checks of size, syntax, version and types.

Invalid input raises ProtocolError with the field's name, and no other exception.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import msgspec

from proto.wire.envelope import MAX_BODY_BYTES, VERSION, Header, Kind
from proto.wire.errors import ProtocolError

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


def encode(value: Any) -> bytes:
    """A record as a msgpack body. Raises ProtocolError past MAX_BODY_BYTES."""
    try:
        body = _encoder.encode(value)
    except (OverflowError, ValueError, RecursionError) as error:  # an integer of more than 64 bits; endless recursion
        raise ProtocolError(f"cannot send {type(value).__name__}: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise ProtocolError(f"cannot send {type(value).__name__}: {len(body)} bytes, at most {MAX_BODY_BYTES}")
    return body


def decode(body: bytes | memoryview, kind: type[T]) -> T:
    """The record of type `kind` in a body. Raises ProtocolError with the name of the wrong field."""
    if len(body) > MAX_BODY_BYTES:
        raise ProtocolError(f"body of {len(body)} bytes, at most {MAX_BODY_BYTES}")
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from error
    except Exception as error:  # malformed bytes, nesting without end, text that is not UTF-8
        raise ProtocolError(f"body is not msgpack: {error or type(error).__name__}") from error


def encode_header(
    kind: Kind, type_name: str, source: str, incarnation: int, correlation: int = 0, trace: str = ""
) -> bytes:
    """Frame 1 of a message, with the present time."""
    header = (VERSION, int(kind), type_name, source, incarnation, correlation, time.monotonic_ns())
    return _encoder.encode((*header, trace) if trace else header)


def decode_header(frame: bytes | memoryview) -> Header:
    """The header in a frame. Raises ProtocolError for another version, an unknown kind or a wrong field."""
    if len(frame) > 1024:
        raise ProtocolError(f"header of {len(frame)} bytes, at most 1024")
    header = decode(frame, Header)
    if header.version != VERSION:
        raise ProtocolError(f"protocol version {header.version}, this side speaks {VERSION}")
    if not 0 <= header.kind <= Kind.ERROR:
        raise ProtocolError(f"unknown kind {header.kind}")
    return header
