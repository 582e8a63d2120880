"""Unary gRPC calls on one HTTP/2 connection, as its client. Bytes in and out, no socket (RFC 9113; gRPC over HTTP2).

As much as it takes to have an answer where there is one: a small request, a small message for it. Headers that come are
not read, so a call that fails ends without a message and without saying why; who wants to know asks by other means.
A message is an answer, whatever the headers after it: servers of unary calls have none for a call that failed.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 5, 6, 7, 8
END_STREAM = ACK = 1
END_HEADERS, PADDED = 4, 8
HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE = 1, 2, 4
CANCEL = 8
WINDOW = 65_535
"""Bytes of data that either side may send unasked, on a stream and on all together."""
MOST_FRAME = 16_384
MOST_ANSWER = 64 * 1024
LAST_STREAM = 0x7FFF_FFFF
_HEAD = struct.Struct(">BHBBI")
_SETTING = struct.Struct(">HI")
_PREFIX = struct.Struct(">BI")
_METHOD_POST, _SCHEME_HTTP = b"\x83", b"\x86"  # of HPACK's static table


class Broken(ConnectionError):
    """The other side ends the connection, or says what nothing here understands."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame. `payload` has MOST_FRAME bytes at most."""
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header as HPACK has it without a table and without Huffman's code: shorter than 127 bytes each."""
    assert max(len(name), len(value)) < 127
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


@functools.lru_cache(64)
def _headers(path: str, timeout_s: float) -> bytes:
    return (
        _METHOD_POST
        + _SCHEME_HTTP
        + _literal(":path", path)
        + _literal(":authority", "localhost")
        + _literal("content-type", "application/grpc")
        + _literal("te", "trailers")
        + _literal("grpc-timeout", f"{math.ceil(timeout_s * 1000)}m")
    )


class UnaryCalls:
    """The calls of a connection, by stream. `send` is given what is to go out, in whole frames."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._came = bytearray()
        self._next = 1
        self._room = WINDOW
        """Bytes of data that the server takes, over all streams."""
        self._room_each = WINDOW
        self._read = 0
        """Bytes of data that the server has not been given room for again."""
        self._answers: dict[int, bytearray] = {}
        settings = _SETTING.pack(HEADER_TABLE_SIZE, 0) + _SETTING.pack(ENABLE_PUSH, 0)
        send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def ask(self, path: str, request: bytes, timeout_s: float) -> int | None:
        """Send a request; the stream on which its answer comes. None: it is too large for now."""
        size = _PREFIX.size + len(request)
        if size > min(MOST_FRAME, self._room, self._room_each) or self._next > LAST_STREAM:
            return None
        stream = self._next
        self._next += 2
        self._room -= size
        self._answers[stream] = bytearray()
        self._send(
            frame(HEADERS, END_HEADERS, stream, _headers(path, timeout_s))
            + frame(DATA, END_STREAM, stream, _PREFIX.pack(0, len(request)) + request)
        )
        return stream

    def give_up(self, stream: int) -> None:
        """Nobody wants that answer any more."""
        if self._answers.pop(stream, None) is not None:
            self._send(frame(RST_STREAM, 0, stream, CANCEL.to_bytes(4, "big")))

    def take(self, data: bytes) -> list[tuple[int, bytes | None]]:
        """What has come; the calls that are over by it: each one's stream, and its message if it has one.

        Raises Broken.
        """
        self._came += data
        over: list[tuple[int, bytes | None]] = []
        at = 0
        while len(self._came) - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(self._came, at)
            size = high << 16 | low
            if size > MOST_FRAME:
                raise Broken(f"a frame of {size} bytes")
            begin = at + _HEAD.size
            if len(self._came) < begin + size:
                break
            at = begin + size
            over += self._take_frame(kind, flags, stream & LAST_STREAM, bytes(self._came[begin:at]))
        del self._came[:at]
        return over

    def _take_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> list[tuple[int, bytes | None]]:
        if kind == DATA:
            self._take_data(flags, stream, payload)
        elif kind == SETTINGS and not flags & ACK:
            self._take_settings(payload)
        elif kind == PING and not flags & ACK:
            self._send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and stream == 0:
            self._room += int.from_bytes(payload, "big") & LAST_STREAM
        elif kind in (GOAWAY, PUSH_PROMISE):
            raise Broken("the server ends the connection" if kind == GOAWAY else "the server pushes")
        ends = kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM)
        if not ends or stream not in self._answers:
            return []
        answer = self._answers.pop(stream)
        return [(stream, None if kind == RST_STREAM else _message(answer))]

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._read += len(payload)
        if self._read >= WINDOW // 2:
            self._send(frame(WINDOW_UPDATE, 0, 0, self._read.to_bytes(4, "big")))
            self._read = 0
        if stream not in self._answers:
            return
        if flags & PADDED:
            raise Broken("padded data")
        self._answers[stream] += payload
        if len(self._answers[stream]) > MOST_ANSWER:
            raise Broken(f"an answer of more than {MOST_ANSWER} bytes")

    def _take_settings(self, payload: bytes) -> None:
        if len(payload) % _SETTING.size:
            raise Broken("settings of an odd length")
        for key, value in _SETTING.iter_unpack(payload):
            if key == INITIAL_WINDOW_SIZE:
                self._room_each = value
        self._send(frame(SETTINGS, ACK, 0))


def _message(data: bytearray) -> bytes | None:
    """The one message of an answer, not compressed; None where there is none."""
    if len(data) < _PREFIX.size:
        return None
    compressed, size = _PREFIX.unpack_from(data)
    return bytes(data[_PREFIX.size :]) if not compressed and len(data) == _PREFIX.size + size else None
