"""Encodes messages to frames and decodes them, with all checks of size, syntax, version and types.

Msgpack reads and writes the bytes, msgspec checks the types. Invalid input raises ProtocolError with the field's name,
and no other exception.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import msgpack
import msgspec

from proto.wire.envelope import MAX_BODY_BYTES, VERSION, Header, Kind
from proto.wire.errors import ProtocolError

T = TypeVar("T")

_NATIVE = (bytes,)
"""Types that msgpack encodes itself, though JSON cannot."""
_PACKER_BYTES = 1024
"""First size of the packer's buffer. msgpack's default of 256 KiB would cost an mmap and munmap for each message."""


def encode(value: Any) -> bytes:
    """A record as a msgpack body. Raises ProtocolError past MAX_BODY_BYTES."""
    try:
        body: bytes = msgpack.packb(msgspec.to_builtins(value, builtin_types=_NATIVE), buf_size=_PACKER_BYTES)
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
        plain = msgpack.unpackb(body, strict_map_key=True)
    except Exception as error:  # msgpack raises a dozen types for malformed bytes
        raise ProtocolError(f"body is not msgpack: {error or type(error).__name__}") from error
    try:
        return msgspec.convert(plain, kind, builtin_types=_NATIVE)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from error


def encode_header(
    kind: Kind, type_name: str, source: str, incarnation: int, correlation: int = 0, trace: str = ""
) -> bytes:
    """Frame 1 of a message, with the present time."""
    header = (VERSION, int(kind), type_name, source, incarnation, correlation, time.monotonic_ns())
    packed: bytes = msgpack.packb((*header, trace) if trace else header, buf_size=_PACKER_BYTES)
    return packed


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
