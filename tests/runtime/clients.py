"""Clients of streaming sessions: SPDY with the command line's own connection, WebSocket with wsproto's other side."""

from __future__ import annotations

import base64
import os
import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from wsproto.connection import Connection as Messages
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage

from actors._net.spdy import Data, Reset
from supervisor.streaming.connection import Connection

CHANNELS = ("stdin", "stdout", "stderr", "error", "resize")
PATIENCE_S = 60.0


def until(ready: Callable[[], bool], fd: int, writing: Callable[[], bool], turn: Callable[[], None]) -> None:
    """`turn` whenever `fd` has something, or room, until `ready`."""
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError("the session did not come so far in time")
        select.select([fd], [fd] if writing() else [], [], 1.0)
        turn()


class SpdySession:
    """The streams of a remote command."""

    def __init__(self, url: str, protocol: str, *kinds: str) -> None:
        self.connection = Connection(url, protocol)
        self.streams = {kind: self.connection.open({"streamtype": kind}) for kind in ("error", *kinds)}
        self.said: dict[str, bytes] = defaultdict(bytes)
        self.ended: set[str] = set()
        self.over = False

    def send(self, kind: str, content: bytes, *, end: bool = False) -> None:
        for at in range(0, len(content), 65536):
            self.connection.write(self.streams[kind], content[at : at + 65536])
            self.wait(lambda: self.connection.waiting < 1_000_000)
        if end:
            self.connection.write(self.streams[kind], b"", end=True)

    def wait(self, ready: Callable[[], bool]) -> None:
        until(ready, self.connection.fileno(), lambda: bool(self.connection.waiting), self._turn)

    def _turn(self) -> None:
        self.connection.flush()
        names = {number: kind for kind, number in self.streams.items()}
        events = self.connection.read()
        self.over = events is None
        for event in events or ():
            if isinstance(event, Data):
                self.said[names[event.stream]] += event.content
            if isinstance(event, Reset) or event.end:
                self.ended.add(names[event.stream])

    def finish(self) -> dict[str, bytes]:
        """All that is said until the outcome is told."""
        self.wait(lambda: "error" in self.ended or self.over)
        self.close()
        return self.said

    def close(self) -> None:
        self.connection.close()


class WebSocketSession:
    """The channels of a remote command, or of port-forward by their numbers."""

    def __init__(self, url: str, protocol: str) -> None:
        target = urlsplit(url)
        self.socket = socket.create_connection((target.hostname, target.port), PATIENCE_S)
        self.protocol = protocol
        key = base64.b64encode(os.urandom(16)).decode()
        asked = (
            f"GET {target.path} HTTP/1.1\r\nHost: {target.netloc}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
        )
        self.socket.sendall(asked.encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.socket.recv(1)
        self.head = head.decode()
        assert " 101 " in self.head, self.head
        self._messages = Messages(ConnectionType.CLIENT)
        self.said: dict[Any, bytes] = defaultdict(bytes)
        self.whole: list[bytes] = []
        self._part = b""
        self.over = False

    def send(self, kind: str | int, content: bytes) -> None:
        number = CHANNELS.index(kind) if isinstance(kind, str) else kind
        for at in range(0, max(1, len(content)), 65536):
            part = content[at : at + 65536]
            if "base64" in self.protocol:
                text = f"{number}{base64.b64encode(part).decode()}"
                self.socket.sendall(self._messages.send(TextMessage(data=text)))
            else:
                self.raw(bytes((number,)) + part)

    def raw(self, content: bytes) -> None:
        self.socket.sendall(self._messages.send(BytesMessage(data=content)))

    def wait(self, ready: Callable[[], bool]) -> None:
        until(ready, self.socket.fileno(), lambda: False, self._turn)

    def _turn(self) -> None:
        received = self.socket.recv(65536)
        if not received:
            self.over = True
            return
        self._messages.receive_data(received)
        for event in self._messages.events():
            if isinstance(event, BytesMessage | TextMessage):
                self._part += event.data.encode() if isinstance(event.data, str) else bytes(event.data)
                if event.message_finished:
                    message, self._part = self._part, b""
                    self._take(message)
            elif isinstance(event, CloseConnection):
                self.over = True

    def _take(self, message: bytes) -> None:
        self.whole.append(message)
        if "SPDY" in self.protocol:
            return
        number, content = message[0], message[1:]
        if "base64" in self.protocol:
            number, content = number - ord("0"), base64.b64decode(content)
        self.said[number] += content
        if number < len(CHANNELS):
            self.said[CHANNELS[number]] += content

    def finish(self) -> dict[Any, bytes]:
        """All that is said until the end."""
        self.wait(lambda: self.over)
        self.close()
        return self.said

    def close(self) -> None:
        self.socket.close()
