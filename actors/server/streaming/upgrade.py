"""Upgrades a client's connection: passes its request through, or serves WebSocket here and asks the runtime for SPDY.

Served here (KEP-4006), because runtimes need not know them: exec and attach in version 5 of the
remote command protocol, and port-forward of SPDY tunnelled in WebSocket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from actors._net.stream import Stream
from actors._net.streaming.remotecommand import SPDY_COMMAND, TUNNELLED, V5, VERSION
from actors.server.base import counters
from actors.server.base.http import Request, Response, Upgraded, text
from actors.server.context import Context
from actors.server.streaming.proxy import proxy_streams
from actors.server.streaming.upstream import Upstream, ask_for_spdy, ask_for_upgrade, head_for

if TYPE_CHECKING:
    from actors.server.streaming.bridge import Bridge

_WEBSOCKET_VERSION = "13"
_SUFFIX = ".k8s.io"


def no_upgrade(request: Request) -> Response | None:
    """The answer to a request that asks for no upgrade; None when it asks for one."""
    return None if request.is_upgrade and request.head else text(400, "Upgrade request required")


def is_translated(context: Context, request: Request) -> bool:
    """True when an exec or attach request uses the version that is translated to SPDY here."""
    return context.settings.extend_websockets_to_kubelet and V5 in request.subprotocols


def tunnelled(context: Context, request: Request) -> list[str]:
    """The SPDY protocols that the request offers within WebSocket; none where the runtime has to unpack them."""
    if not context.settings.extend_websockets_to_kubelet:
        return []
    names = (one for one in request.subprotocols if one.startswith(TUNNELLED) and one.endswith(_SUFFIX))
    return [name.removeprefix(TUNNELLED) for name in names]


def refusal(request: Request) -> Response | None:
    """The answer to an invalid WebSocket handshake (RFC 6455, 4.2.1); None for a valid one."""
    if request.method != "GET":
        return text(405, "unable to upgrade: WebSocket begins with a GET", Allow="GET")
    if request.headers.get("sec-websocket-version") != _WEBSOCKET_VERSION:
        why = f"unable to upgrade: WebSocket version {_WEBSOCKET_VERSION} is wanted"
        return text(400, why, **{"Sec-WebSocket-Version": _WEBSOCKET_VERSION})
    if not request.headers.get("sec-websocket-key"):
        return text(400, "unable to upgrade: there is no Sec-WebSocket-Key")
    return None


async def proxy_request(context: Context, request: Request, target: Upstream) -> Response | Upgraded:
    """Pass the client's request and all further bytes through to the runtime."""
    agreed = await ask_for_upgrade(context, target, partial(head_for, request.head))
    if isinstance(agreed, Response):
        return agreed
    idle_s = context.settings.streaming_idle_timeout_s
    return Upgraded(lambda client, early: proxy_streams(client, agreed.stream, early, agreed.said, idle_s))


async def translate(
    context: Context, request: Request, target: Upstream, streams: dict[str, bool]
) -> Response | Upgraded:
    """Speak version 5 with the client and SPDY with the runtime; `streams` are the arguments of the CRI rpc."""
    counters.websocket_stream(request.path)
    agreed = await ask_for_spdy(context, target, SPDY_COMMAND)
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


async def tunnel(context: Context, request: Request, target: Upstream, protocols: Sequence[str]) -> Response | Upgraded:
    """Unpack the client's SPDY from WebSocket and pass it to the runtime."""
    counters.websocket_stream(request.path)
    agreed = await ask_for_spdy(context, target, protocols)
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
