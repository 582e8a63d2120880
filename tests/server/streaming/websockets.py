"""WebSocket clients of a server's table, a runtime that speaks SPDY only, and invalid frames."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from wsproto.frame_protocol import XorMaskerSimple

from tests.runtime.streaming.clients import WebSocketSession
from tests.server.routes.here import Here
from tests.server.streaming.spdy_runtime import Peer, SpdyRuntime

V5 = "v5.channel.k8s.io"
TUNNEL = "SPDY/3.1+portforward.k8s.io"
EXEC = "/exec/ns/one/c?command=x&output=1&error=1&input=1"
ON_TERMINAL = "/exec/ns/one/c?command=x&output=1&input=1&tty=1"


def configure(here: Here, **values: Any) -> None:
    here.context.settings = msgspec.structs.replace(here.context.settings, **values)


@contextmanager
def runtime(here: Here, act: Callable[[Peer], None], **options: Any) -> Iterator[SpdyRuntime]:
    made = SpdyRuntime(act, **options)
    here.runtime.url = made.url
    yield made
    made.close()


def open_session(here: Here, target: str = EXEC, protocol: str = V5, **options: Any) -> WebSocketSession:
    return WebSocketSession(f"http://127.0.0.1:{here.site.plain}{target}", protocol, **options)


def has(peer: Peer, kinds: list[str]) -> bool:
    return peer.until(lambda: list(peer.streams) == kinds)


def websocket(protocol: str, **other: str) -> str:
    headers = {
        "Connection": "keep-alive, Upgrade",
        "Upgrade": "WebSocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": protocol,
    }
    return "".join(f"{name}: {value}\r\n" for name, value in (headers | other).items() if value)


def frame(opcode: int, content: bytes, *, final: bool = True, masked: bool = True) -> bytes:
    """One frame, valid or not."""
    size = len(content)
    sizes = struct.pack(">BH", 126, size) if 125 < size < 65536 else bytes((size,)) if size <= 125 else b""
    sizes = sizes or struct.pack(">BQ", 127, size)
    mask = b"\x01\x02\x03\x04"
    head = bytes((final << 7 | opcode, sizes[0] | masked << 7)) + sizes[1:]
    return head + (mask + bytes(XorMaskerSimple(mask).process(content)) if masked else content)
