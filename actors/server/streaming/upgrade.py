"""The runtime's streaming server is asked to upgrade; what it says decides whether a session begins, and of which kind.

A client's own request is handed through as it came. One for WebSocket in a version that runtimes need not know is asked
for in SPDY instead (KEP-4006): remote command version 5 is translated, port-forward in a tunnel is unpacked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import h11

from actors._cri.call import Call
from actors._net.stream import HEAD_BLOCK, Stream, connect
from actors._net.streaming.remotecommand import SPDY_COMMAND, TUNNELLED, V5, VERSION, listed
from actors.server.base import counters
from actors.server.base.http import Request, Response, Upgraded, text
from actors.server.context import Context
from actors.server.streaming.proxy import hand_over

if TYPE_CHECKING:
    from actors.server.streaming.bridge import Bridge

CONNECT_S = 10.0
ANSWER_S = 30.0
"""For the head of the runtime's answer: an exec has been set up before that."""
REFUSAL_BYTES = 64 * 1024
ANSWER_BYTES = 256 * 1024
"""Of an answer before its upgrade, or instead of it: what is more is no refusal that anybody reads."""
_AGREED = re.compile(rb"HTTP/1\.1 101 [^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n")
"""Nearly every answer, and in one piece; the parser takes half a millisecond."""
_TARGET = re.compile(rb"\A([A-Z]+) [^ ]+ ")
_HOST = re.compile(rb"(?im)^host:[^\r\n]*\r\n")
_AUTHORIZATION = re.compile(rb"(?im)^authorization:[^\r\n]*\r\n")
_SPDY = "SPDY/3.1"
_WEBSOCKET_VERSION = "13"
_SUFFIX = ".k8s.io"


class NoWay(Exception):
    """The runtime's streaming server cannot be had; the message is the client's to read."""


class Way(NamedTuple):
    """Where the runtime serves a session, and a connection to there on which nothing has been said yet."""

    path: str
    """With its query."""
    host: str
    stream: Stream


@dataclass
class Agreed:
    """The runtime speaks another protocol on this connection from here on."""

    stream: Stream
    said: bytes
    """All of it so far, the head of the answer too."""
    head_bytes: int

    @property
    def rest(self) -> bytes:
        """What came after the head."""
        return self.said[self.head_bytes :]

    def header(self, name: str) -> str:
        """Of the answer; empty where it has none."""
        for line in self.said[: self.head_bytes].decode("latin-1").splitlines()[1:]:
            found, _, value = line.partition(":")
            if found.strip().lower() == name.lower():
                return value.strip()
        return ""


# What a request wants


def offered(request: Request) -> list[str]:
    """The WebSocket subprotocols that it offers; none for another upgrade."""
    if not request.is_upgrade or request.headers["upgrade"].lower() != "websocket":
        return []
    return listed([request.headers.get("sec-websocket-protocol", "")])


def no_upgrade(request: Request) -> Response | None:
    """What is answered where another protocol has to be asked for, and is not."""
    return None if request.is_upgrade and request.head else text(400, "Upgrade request required")


def is_translated(context: Context, request: Request) -> bool:
    """Whether it is for exec or attach in a version that is made SPDY here."""
    return context.settings.extend_websockets_to_kubelet and V5 in offered(request)


def tunnelled(context: Context, request: Request) -> list[str]:
    """The SPDY protocols that it offers to speak within WebSocket; none where that is the runtime's to unpack."""
    if not context.settings.extend_websockets_to_kubelet:
        return []
    names = (one for one in offered(request) if one.startswith(TUNNELLED) and one.endswith(_SUFFIX))
    return [name.removeprefix(TUNNELLED) for name in names]


def refusal(request: Request) -> Response | None:
    """What is wrong with the WebSocket handshake (RFC 6455, 4.2.1), if anything is."""
    if request.method != "GET":
        return text(405, "unable to upgrade: WebSocket begins with a GET", Allow="GET")
    if request.headers.get("sec-websocket-version") != _WEBSOCKET_VERSION:
        why = f"unable to upgrade: WebSocket version {_WEBSOCKET_VERSION} is wanted"
        return text(400, why, **{"Sec-WebSocket-Version": _WEBSOCKET_VERSION})
    if not request.headers.get("sec-websocket-key"):
        return text(400, "unable to upgrade: there is no Sec-WebSocket-Key")
    return None


# What becomes of it


async def hand_through(context: Context, request: Request, way: Way) -> Response | Upgraded:
    """The client speaks with the runtime, and nothing is understood here."""
    agreed = await _ask(context, way, partial(head_for, request.head))
    if isinstance(agreed, Response):
        return agreed
    idle_s = context.settings.streaming_idle_timeout_s
    return Upgraded(lambda client, early: hand_over(client, agreed.stream, early, agreed.said, idle_s))


async def translate(context: Context, request: Request, way: Way, streams: dict[str, bool]) -> Response | Upgraded:
    """The client speaks version 5 with us, and we SPDY with the runtime; `streams` are those of the CRI's rpc."""
    counters.websocket_stream(request.path)
    agreed = await _ask_for_spdy(context, way, SPDY_COMMAND)
    if isinstance(agreed, Response):
        return agreed
    version = agreed.header(VERSION) or SPDY_COMMAND[-1]
    if version not in SPDY_COMMAND:
        agreed.stream.close()
        return text(500, f"the runtime's streaming server chose {version!r}, which was not offered")

    def make(client: Stream, early: bytes) -> Bridge:
        from actors.server.streaming.bridge import Ends  # noqa: PLC0415 - wsproto is 1.5 MB, with the first session
        from actors.server.streaming.translation import Translation  # noqa: PLC0415 - see above

        return Translation(Ends(client, early, agreed.stream, agreed.rest, idle_s), version, streams)

    idle_s = context.settings.streaming_idle_timeout_s
    return _bridged(request, make, V5)


async def tunnel(context: Context, request: Request, way: Way, protocols: Sequence[str]) -> Response | Upgraded:
    """The client speaks SPDY with the runtime, within a WebSocket with us."""
    counters.websocket_stream(request.path)
    agreed = await _ask_for_spdy(context, way, protocols)
    if isinstance(agreed, Response):
        return agreed

    def make(client: Stream, early: bytes) -> Bridge:
        from actors.server.streaming.bridge import Ends  # noqa: PLC0415 - see `translate`
        from actors.server.streaming.tunnel import Tunnel  # noqa: PLC0415 - see `translate`

        return Tunnel(Ends(client, early, agreed.stream, agreed.rest, idle_s))

    idle_s = context.settings.streaming_idle_timeout_s
    chosen = agreed.header(VERSION)
    return _bridged(request, make, TUNNELLED + chosen if chosen in protocols else "")


def _bridged(request: Request, make: Callable[[Stream, bytes], Bridge], protocol: str) -> Upgraded:
    key = request.headers["sec-websocket-key"]
    return Upgraded(lambda client, early: make(client, early).run(key, protocol))


# The runtime


def head_for(head: bytes, path: str, host: str) -> bytes:
    """The client's own request head for the runtime: with its target, and without the client's credentials."""
    head = _TARGET.sub(lambda found: found[1] + b" " + path.encode() + b" ", head, count=1)
    head = _AUTHORIZATION.sub(b"", head)
    return _HOST.sub(b"Host: " + host.encode() + b"\r\n", head, count=1)


def spdy_head(protocols: Sequence[str], path: str, host: str) -> bytes:
    """A request of our own for SPDY, in one of these protocols."""
    versions = "".join(f"{VERSION}: {one}\r\n" for one in protocols)
    upgrade = f"Connection: Upgrade\r\nUpgrade: {_SPDY}\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{upgrade}{versions}Content-Length: 0\r\n\r\n".encode()


async def _ask_for_spdy(context: Context, way: Way, protocols: Sequence[str]) -> Response | Agreed:
    agreed = await _ask(context, way, partial(spdy_head, protocols))
    if isinstance(agreed, Agreed) and agreed.header("Upgrade").lower() != _SPDY.lower():
        agreed.stream.close()
        return text(500, f"the runtime's streaming server did not agree to {_SPDY}")
    return agreed


async def way_to(context: Context, asked: Call[str]) -> Way:
    """To where the runtime says that it serves a session. Raises CriError and NoWay."""
    url = await asked
    try:
        target = urlsplit(url)
        host, port = target.hostname or "127.0.0.1", target.port or 80
    except ValueError as error:
        raise NoWay(f"cannot use the URL {url[:200]!r} of the runtime's streaming server: {error}") from error
    if target.scheme != "http":
        raise NoWay(f"the runtime serves its streams on {target.scheme}, which is not supported: set it to http")
    try:
        stream = await connect(context.loop, host, port, CONNECT_S)
    except OSError as error:
        raise NoWay(f"cannot reach the runtime's streaming server at {host} port {port}: {error.strerror}") from error
    return Way(target.path + (f"?{target.query}" if target.query else ""), f"{host}:{port}", stream)


async def _ask(context: Context, way: Way, make_head: Callable[[str, str], bytes]) -> Response | Agreed:
    """The runtime's answer to the head that is made of path and host; a refusal as an answer of ours."""
    other = way.stream
    timer = context.loop.call_later(ANSWER_S, other.abort)
    answer: Response | Agreed | None = None
    try:
        await other.write(make_head(way.path, way.host))
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
    http.send(h11.Request(method="GET", target="/", headers=asked))  # what it has to know to understand the answer
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
