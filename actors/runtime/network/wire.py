"""Messages of netlink(7): attributes, a request with its answers, a batch.

Used for links (netlink.py), address translation (nftables.py) and tracked flows (conntrack.py). The kernel handles a
request before send() returns, so the answers are ready then; each socket has a timeout all the same.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence

REQUEST, ACK, DUMP, EXCL, CREATE = 1, 4, 0x300, 0x200, 0x400
NETFILTER = 12
"""NETLINK_NETFILTER, for which Python has no name."""
NESTED = 0x8000
_KIND_MASK = 0x3FFF
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_ANSWER_BYTES = 1 << 18
_ANSWER_S = 10.0
_SO_SNDBUFFORCE = 32


class Refused(OSError):
    """The kernel refuses a request; `at` is the number of the message in its batch."""

    def __init__(self, code: int, at: int = 0) -> None:
        super().__init__(code, os.strerror(code))
        self.at = at


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded."""
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *inner: bytes) -> bytes:
    """An attribute that contains others."""
    return attribute(kind | NESTED, b"".join(inner))


def text(kind: int, value: str) -> bytes:
    """A string attribute, with its NUL."""
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    """A 32-bit attribute in the machine's byte order, as in rtnetlink."""
    return attribute(kind, struct.pack("=I", value))


def big_endian(kind: int, value: int) -> bytes:
    """A 32-bit attribute in network byte order, as in netfilter."""
    return attribute(kind, struct.pack("!i" if value < 0 else "!I", value))


def parse(data: bytes) -> dict[int, bytes]:
    """Attributes by kind, the last one of each. Stops at an invalid one."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        found[kind & _KIND_MASK] = data[at + 4 : at + length]
        at += length + (-length % 4)
    return found


def message(kind: int, flags: int, payload: bytes, at: int = 0) -> bytes:
    """One message, with the number `at` in its batch."""
    return _HEADER.pack(_HEADER.size + len(payload), kind, flags | REQUEST, at, 0) + payload


def request(protocol: int, kind: int, flags: int, payload: bytes) -> None:
    """Send a request and wait for its acknowledgement. Raises Refused, OSError."""
    with _open(protocol) as sock:
        sock.send(message(kind, flags | ACK, payload))
        _wait_for(sock, 0)


def dump(protocol: int, kind: int, payload: bytes) -> Iterator[bytes]:
    """Yield the payload of each existing object. Raises Refused, OSError."""
    with _open(protocol) as sock:
        sock.send(message(kind, DUMP, payload))
        while True:
            for found, _, content in _split(sock.recv(_ANSWER_BYTES)):
                if found == _DONE:
                    return
                if found == _ERROR:
                    raise Refused(-struct.unpack_from("=i", content)[0])
                yield content


def batch(protocol: int, messages: Sequence[bytes]) -> None:
    """Send messages that apply all or none. Raises Refused, OSError.

    They are numbered from 0. The last one asks for an acknowledgement; one message that never gets one may follow it.
    """
    content = b"".join(messages)
    with _open(protocol) as sock:
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 2 * len(content) + (1 << 16))
        sock.send(content)
        _wait_for(sock, len(messages) - 2)


def _open(protocol: int) -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    sock.settimeout(_ANSWER_S)
    sock.bind((0, 0))
    return sock


def _wait_for(sock: socket.socket, last: int) -> None:
    """Wait for the acknowledgement of message `last`. Raises the first error of any message."""
    while True:
        for kind, at, content in _split(sock.recv(_ANSWER_BYTES)):
            if kind != _ERROR:
                continue
            (code,) = struct.unpack_from("=i", content)
            if code != 0:
                raise Refused(-code, at)
            if at == last:
                return


def _split(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, number and payload of each message."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, of, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
        yield kind, of, data[at + _HEADER.size : at + length]
        at += length + (-length % 4)
