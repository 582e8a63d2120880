"""The HTTP/1.1 start of a session: one request, answered by a refusal or 101 Switching Protocols."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import h11

from actors._net.stream import Stream

HEAD_BYTES = 64 * 1024


@dataclass
class Upgrade:
    """A client's request. Names of headers are in lower case."""

    http: h11.Connection
    method: str
    path: str
    headers: dict[str, list[str]] = field(default_factory=dict)

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return self.headers.get(name, [])

    @property
    def to(self) -> str:
        """The requested protocol in lower case; empty if none is requested."""
        wants = any("upgrade" in value.lower() for value in self.values("connection"))
        return next(iter(self.values("upgrade")), "").lower() if wants else ""

    @property
    def early(self) -> bytes:
        """Bytes that followed the request."""
        return bytes(self.http.trailing_data[0])


async def read_request(stream: Stream) -> Upgrade | None:
    """Read the request; None when the client leaves. Raises OSError, h11.RemoteProtocolError."""
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
    asked: Upgrade | None = None
    while True:
        event: Any = http.next_event()
        if event is h11.NEED_DATA:
            received = await stream.read()
            if not received:
                return None
            http.receive_data(received)
        elif isinstance(event, h11.Request):
            path = event.target.decode("latin-1").partition("?")[0]
            asked = Upgrade(http, event.method.decode("latin-1"), path)
            for name, value in event.headers:
                asked.headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        elif event is h11.PAUSED or isinstance(event, h11.EndOfMessage):
            if http.their_state in (h11.DONE, h11.MIGHT_SWITCH_PROTOCOL):  # type: ignore[attr-defined]
                return asked
        elif isinstance(event, h11.ConnectionClosed):
            return None


async def switch(stream: Stream, asked: Upgrade, headers: dict[str, str]) -> None:
    """Accept the upgrade; the other protocol follows. Raises OSError."""
    fields = [("Connection", "Upgrade"), *headers.items()]
    head = asked.http.send(h11.InformationalResponse(status_code=101, headers=fields, reason=b"Switching Protocols"))
    await stream.write(head or b"")


async def refuse(stream: Stream, http: h11.Connection, status: int, text: str, headers: dict[str, str]) -> None:
    """Send an error response and close. Raises OSError."""
    body = f"{text}\n".encode()
    fields = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))), *headers.items()]
    out = http.send(h11.Response(status_code=status, headers=[*fields, ("Connection", "close")])) or b""
    await stream.write(out + (http.send(h11.Data(data=body)) or b"") + (http.send(h11.EndOfMessage()) or b""))
    await stream.end()
