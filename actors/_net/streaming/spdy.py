"""The part of SPDY/3.1 that Kubernetes' streaming uses, without sockets: streams, data, resets and pings.

https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/. Header blocks are compressed without the preset
dictionary, which the format allows. The headers of a reply are not read: a reply only confirms its stream. Kubernetes
has no flow control in SPDY: no windows are sent or respected, and unread data blocks the whole connection. The command
line and the server use the client side, the embedded runtime the server side.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import NamedTuple

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY = 1, 2, 3, 4, 6, 7
FIN = 1
CANCEL, REFUSED_STREAM = 5, 3
"""Reasons of a reset."""
MAX_HEADERS = 4 * 1024
"""Limit of one stream's decompressed headers. Kubernetes sends a few words."""
MAX_NAMES = 16
"""Limit of their number. Kubernetes sends three."""
MAX_CONTROL = 128 * 1024
"""Limit of a control frame, which may hold compressed headers."""
WHOLE_DATA = 1024 * 1024
"""A data frame up to this size becomes one event, a larger one an event for each part received. Clients send 32 KB."""
_CONTROL = 0x8003_0000
_VERSION = 0xFFFF_0000
MAX_DATA = 0xFF_FFFF


_NAMES = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_PHRASES = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_VALUES = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug "
    "Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _sized(text: str) -> bytes:
    content = text.encode()
    return struct.pack(">I", len(content)) + content


DICTIONARY = b"".join(_sized(word) for word in (*_NAMES.split(), *_PHRASES)) + _VALUES.encode()
"""The preset dictionary of section 2.6.10.1, with which the other side may compress header blocks."""


class ProtocolError(Exception):
    """The other side violates SPDY. The connection cannot be parsed further."""


class Opened(NamedTuple):
    """The other side opened a stream; header names are in lower case."""

    stream: int
    headers: dict[str, str]
    end: bool


class Data(NamedTuple):
    """Bytes of a stream: a frame, or a part of a large one. `end`: no more follow."""

    stream: int
    content: bytes
    end: bool


class Accepted(NamedTuple):
    """The other side accepted the stream."""

    stream: int


class Reset(NamedTuple):
    """The other side rejected or ended the stream."""

    stream: int


class Pinged(NamedTuple):
    """A ping came; `answer` is the frame to send."""

    answer: bytes


class GoneAway(NamedTuple):
    """The other side accepts no more streams."""


Event = Opened | Data | Accepted | Reset | Pinged | GoneAway


class Session:
    """One side of a connection. Only the client opens streams."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._next_event: Event | None = None
        """The second event of the last frame."""
        self._next = 1
        self._pinged = 0
        self._coming = Data(0, b"", False)
        self._left = 0
        """Bytes still to come of a large frame, whose stream and end are in `_coming`."""
        self._compress = zlib.compressobj()
        self._decompress = zlib.decompressobj(zdict=DICTIONARY)

    def open(self, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """A new stream's number and its frame."""
        number, self._next = self._next, self._next + 2
        return number, _control(SYN_STREAM, struct.pack(">IIBB", number, 0, 0, 0) + self._packed(headers))

    def accept(self, stream: int) -> bytes:
        """The frame that accepts a stream of the other side."""
        return _control(SYN_REPLY, struct.pack(">I", stream) + self._packed({}))

    def _packed(self, headers: Mapping[str, str]) -> bytes:
        block = struct.pack(">I", len(headers)) + b"".join(
            _sized(name.lower()) + _sized(value) for name, value in headers.items()
        )
        return self._compress.compress(block) + self._compress.flush(zlib.Z_SYNC_FLUSH)

    @staticmethod
    def go_away() -> bytes:
        """The frame after which no more streams are accepted."""
        return _control(GOAWAY, struct.pack(">II", 0, 0))

    @staticmethod
    def data(stream: int, content: bytes, *, end: bool = False) -> bytes:
        """The frame with bytes of a stream, at most MAX_DATA."""
        assert len(content) <= MAX_DATA
        return struct.pack(">II", stream, (FIN << 24 if end else 0) | len(content)) + content

    @staticmethod
    def reset(stream: int, why: int = CANCEL) -> bytes:
        """The frame that ends a stream at once."""
        return _control(RST_STREAM, struct.pack(">II", stream, why))

    def ping(self) -> bytes:
        """A ping frame, for clients only. Its answer produces no event."""
        self._pinged += 1 if not self._pinged else 2
        return _control(PING, struct.pack(">I", self._pinged))

    def feed(self, received: bytes) -> list[Event]:
        """The events of the received bytes; an incomplete frame waits. Raises ProtocolError."""
        self.receive(received)
        return list(iter(self.next_event, None))

    def receive(self, received: bytes) -> None:
        """Add bytes for `next_event`."""
        self._buffer += received

    def next_event(self) -> Event | None:
        """The next event of the received bytes; None when there is no complete frame. Raises ProtocolError.

        Headers stay compressed until their turn. A block of 30 bytes may become 4 KB.
        """
        if self._next_event is not None:
            event, self._next_event = self._next_event, None
            return event
        while self._left or len(self._buffer) >= 8:
            if self._left:
                return self._part() if self._buffer else None
            first, second = struct.unpack_from(">II", self._buffer)
            length = second & MAX_DATA
            if not first & 0x8000_0000 and length > WHOLE_DATA:
                del self._buffer[:8]
                self._coming, self._left = Data(first, b"", bool(second >> 24 & FIN)), length
                continue
            if first & 0x8000_0000 and (first & _VERSION != _CONTROL or length > MAX_CONTROL):
                raise ProtocolError(f"this is no control frame of SPDY/3.1: it begins with {first:08x}{second:08x}")
            if len(self._buffer) < 8 + length:
                return None
            content = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            if events := self._event(first, second >> 24, content):
                self._next_event = events[1] if len(events) > 1 else None
                return events[0]
        return None

    def _part(self) -> Data:
        content = bytes(self._buffer[: self._left])
        del self._buffer[: self._left]
        self._left -= len(content)
        return Data(self._coming.stream, content, self._coming.end and not self._left)

    def _event(self, first: int, flags: int, content: bytes) -> list[Event]:
        if not first & 0x8000_0000:
            return [Data(first, content, bool(flags & FIN))]
        number = struct.unpack_from(">I", content)[0] & 0x7FFF_FFFF if len(content) >= 4 else 0
        events: list[Event] = []  # none for settings, headers and window updates
        match first & 0xFFFF:
            case 1:
                events = [Opened(number, self._unpacked(content[10:]), bool(flags & FIN))]
            case 2:
                events = [Accepted(number), *([Data(number, b"", True)] if flags & FIN else [])]
            case 3:
                events = [Reset(number)]
            case 6 if not self._is_ours(content):
                events = [Pinged(_control(PING, content))]
            case 7:
                events = [GoneAway()]
        return events

    def _is_ours(self, ping: bytes) -> bool:
        """True when it answers our ping, which has an odd number. Answering it again would never end."""
        if len(ping) != 4:
            raise ProtocolError("a ping has no number")
        (number,) = struct.unpack(">I", ping)
        return bool(number & 1) and number <= self._pinged

    def _unpacked(self, packed: bytes) -> dict[str, str]:
        """Decompress a header block. All blocks share one zlib stream, so an error in one spoils the later ones."""
        try:
            block = self._decompress.decompress(packed, MAX_HEADERS)
            if self._decompress.unconsumed_tail or len(block) >= MAX_HEADERS:
                raise ProtocolError("the headers of a stream are too large")
            (count,) = struct.unpack_from(">I", block)
            if count > MAX_NAMES:
                raise ProtocolError(f"a stream has {count} headers, more than {MAX_NAMES}")
            words, at = [], 4
            for _ in range(2 * count):
                (length,) = struct.unpack_from(">I", block, at)
                words.append(block[at + 4 : at + 4 + length].decode())
                at += 4 + length
        except (zlib.error, struct.error, UnicodeDecodeError) as error:
            raise ProtocolError(f"the headers of a stream cannot be read: {error}") from error
        return {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}


def _control(kind: int, content: bytes, flags: int = 0) -> bytes:
    return struct.pack(">II", _CONTROL | kind, flags << 24 | len(content)) + content
