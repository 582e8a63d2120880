"""The runtime's streaming server: connects to it, asks it to upgrade and reads its answer.

Nothing is sent to the client here. A refusal of the runtime becomes a `Response`, an agreement becomes `Agreed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from actors._cri.call import Call
from actors._net.stream import HEAD_BLOCK, Stream, connect
from actors._net.streaming.remotecommand import TOKEN_PROTOCOL, VERSION
from actors.server.base.http import Response, text
from actors.server.context import Context

CONNECT_S = 10.0
ANSWER_S = 30.0
"""Time for the head of the runtime's answer. The exec itself was set up before."""
REFUSAL_BYTES = 64 * 1024
"""Bytes of a refusal's body that are passed on."""
ANSWER_BYTES = 256 * 1024
"""Limit of an answer before its upgrade, or instead of it."""
_AGREED = re.compile(rb"HTTP/1\.1 101 [^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n")
"""Nearly every answer, in one piece. The h11 parser takes half a millisecond."""
_TARGET = re.compile(rb"\A([A-Z]+) [^ ]+ ")
_HOST = re.compile(rb"(?im)^host:[^\r\n]*\r\n")
_AUTHORIZATION = re.compile(rb"(?im)^authorization:[^\r\n]*\r\n")
_PROTOCOLS = re.compile(rb"(?im)^(sec-websocket-protocol:)([^\r\n]*)")
_SPDY = "SPDY/3.1"


class UpstreamUnavailable(Exception):
    """The runtime's streaming server cannot be used. The message goes to the client."""


class Upstream(NamedTuple):
    """A session's path and host on the runtime's streaming server, and a connection on which nothing was sent yet."""

    path: str
    """Path and query."""
    host: str
    stream: Stream


@dataclass
class Agreed:
    """The runtime switched the protocol of this connection."""

    stream: Stream
    said: bytes
    """All bytes received so far, with the head of the answer."""
    head_bytes: int

    @property
    def rest(self) -> bytes:
        """The bytes after the head."""
        return self.said[self.head_bytes :]

    def header(self, name: str) -> str:
        """A header of the answer; empty without it."""
        for line in self.said[: self.head_bytes].decode("latin-1").splitlines()[1:]:
            found, _, value = line.partition(":")
            if found.strip().lower() == name.lower():
                return value.strip()
        return ""


def head_for(head: bytes, path: str, host: str) -> bytes:
    """The client's request head with the runtime's path and host, and without the client's credentials."""
    head = _TARGET.sub(lambda found: found[1] + b" " + path.encode() + b" ", head, count=1)
    head = _AUTHORIZATION.sub(b"", head)
    head = _PROTOCOLS.sub(_without_token, head)
    return _HOST.sub(b"Host: " + host.encode() + b"\r\n", head, count=1)


def _without_token(header: re.Match[bytes]) -> bytes:
    """The header of WebSocket subprotocols without a bearer token among them."""
    names = (name.strip() for name in header[2].split(b","))
    return header[1] + b" " + b", ".join(name for name in names if not name.startswith(TOKEN_PROTOCOL.encode()))


def spdy_head(protocols: Sequence[str], path: str, host: str) -> bytes:
    """A request for an upgrade to SPDY in one of `protocols`."""
    versions = "".join(f"{VERSION}: {one}\r\n" for one in protocols)
    upgrade = f"Connection: Upgrade\r\nUpgrade: {_SPDY}\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{upgrade}{versions}Content-Length: 0\r\n\r\n".encode()


async def ask_for_spdy(context: Context, target: Upstream, protocols: Sequence[str]) -> Response | Agreed:
    """Ask the runtime for SPDY in one of `protocols`. A refusal becomes an answer to the client."""
    agreed = await ask_for_upgrade(context, target, partial(spdy_head, protocols))
    if isinstance(agreed, Agreed) and agreed.header("Upgrade").lower() != _SPDY.lower():
        agreed.stream.close()
        return text(500, f"the runtime's streaming server did not agree to {_SPDY}")
    return agreed


async def connect_upstream(context: Context, asked: Call[str]) -> Upstream:
    """Connect to the URL that the rpc `asked` answers. Raises CriError and UpstreamUnavailable."""
    url = await asked
    try:
        target = urlsplit(url)
        host, port = target.hostname or "127.0.0.1", target.port or 80
    except ValueError as error:
        raise UpstreamUnavailable(
            f"cannot use the URL {url[:200]!r} of the runtime's streaming server: {error}"
        ) from error
    if target.scheme != "http":
        raise UpstreamUnavailable(
            f"the runtime serves its streams on {target.scheme}, which is not supported: set it to http"
        )
    try:
        stream = await connect(context.loop, host, port, CONNECT_S)
    except OSError as error:
        raise UpstreamUnavailable(
            f"cannot reach the runtime's streaming server at {host} port {port}: {error.strerror}"
        ) from error
    return Upstream(target.path + (f"?{target.query}" if target.query else ""), f"{host}:{port}", stream)


async def ask_for_upgrade(
    context: Context, target: Upstream, make_head: Callable[[str, str], bytes]
) -> Response | Agreed:
    """Send the head made of the target's path and host. A refusal becomes an answer to the client."""
    other = target.stream
    timer = context.loop.call_later(ANSWER_S, other.abort)
    answer: Response | Agreed | None = None
    try:
        await other.write(make_head(target.path, target.host))
        answer = await _answer_of(other)
    except (OSError, h11.RemoteProtocolError) as error:
        return text(500, f"the runtime's streaming server gave no answer: {error}")
    finally:
        timer.cancel()
        if not isinstance(answer, Agreed):
            other.close()
    return answer


async def _answer_of(other: Stream) -> Response | Agreed:
    said = await other.read(HEAD_BLOCK)
    if agreed := _AGREED.match(said):
        return Agreed(other, said, agreed.end())
    http = h11.Connection(h11.CLIENT)
    asked = [("Host", "runtime"), ("Connection", "Upgrade"), ("Upgrade", "any")]
    http.send(h11.Request(method="GET", target="/", headers=asked))  # h11 parses an answer only after a request
    http.send(h11.EndOfMessage())
    http.receive_data(said)
    status, body = 0, b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            data = await other.read(HEAD_BLOCK)
            said += data
            if len(said) > ANSWER_BYTES:
                raise ConnectionAbortedError(f"its answer is longer than {ANSWER_BYTES} bytes")
            http.receive_data(data)
        elif isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            return Agreed(other, said, len(said) - len(http.trailing_data[0]))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body = (body + event.data)[:REFUSAL_BYTES]
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return Response(status or 502, body)
