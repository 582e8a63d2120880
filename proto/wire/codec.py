"""The one codec: messages to frames and back, with every check done here.

msgpack does the bytes, msgspec the types. Anything wrong is a ProtocolError naming the field; nothing else is raised,
whatever the bytes are.
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
"""What msgpack carries itself and JSON does not."""
_PACKER_BYTES = 1024
"""To begin with. msgpack's own quarter of a megabyte is, for every single message, a mapping of memory that is made,
touched and given back."""


def encode(value: Any) -> bytes:
    """A record as a msgpack body. Raises ProtocolError past MAX_BODY_BYTES."""
    try:
        body: bytes = msgpack.packb(msgspec.to_builtins(value, builtin_types=_NATIVE), buf_size=_PACKER_BYTES)
    except (OverflowError, ValueError, RecursionError) as error:  # an integer of more than 64 bits; values without end
        raise ProtocolError(f"cannot send {type(value).__name__}: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise ProtocolError(f"cannot send {type(value).__name__}: {len(body)} bytes, at most {MAX_BODY_BYTES}")
    return body


def decode(body: bytes | memoryview, kind: type[T]) -> T:
    """The record of type `kind` in a body. Raises ProtocolError that names the field that is wrong."""
    if len(body) > MAX_BODY_BYTES:
        raise ProtocolError(f"body of {len(body)} bytes, at most {MAX_BODY_BYTES}")
    try:
        plain = msgpack.unpackb(body, strict_map_key=True)
    except Exception as error:  # msgpack raises a dozen types for malformed bytes, RecursionError-like ones included
        raise ProtocolError(f"body is not msgpack: {error or type(error).__name__}") from error
    try:
        return msgspec.convert(plain, kind, builtin_types=_NATIVE)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from error


def encode_header(kind: Kind, type_name: str, source: str, incarnation: int, correlation: int = 0) -> bytes:
    """Frame 1 of a message sent now."""
    header = (VERSION, int(kind), type_name, source, incarnation, correlation, time.monotonic_ns())
    packed: bytes = msgpack.packb(header, buf_size=_PACKER_BYTES)
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
