"""Clients of streaming sessions: SPDY with the command line's connection, WebSocket with wsproto's client side."""

from __future__ import annotations

import base64
import contextlib
import os
import select
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from wsproto.connection import Connection as Messages
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from actors._net.streaming.spdy import Data, Reset
from supervisor.cli.streams.transport.connection import Connection

CHANNELS = ("stdin", "stdout", "stderr", "error", "resize")
PATIENCE_S = 60.0
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def until(ready: Callable[[], bool], fd: int, writing: Callable[[], bool], turn: Callable[[], None]) -> None:
    """Call `turn` when `fd` is readable or writable, until `ready`."""
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError("the session did not come so far in time")
        select.select([fd], [fd] if writing() else [], [], 1.0)
        turn()


class SpdySession:
    """The streams of a remote command over SPDY."""

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
        """Read all streams until the outcome."""
        self.wait(lambda: "error" in self.ended or self.over)
        self.close()
        return self.said

    def close(self) -> None:
        self.connection.close()


class WebSocketSession:
    """The channels of a remote command or a port-forward session over WebSocket, by number."""

    def __init__(
        self, url: str, protocol: str, tls: ssl.SSLContext | None = None, early: bytes = b"", receive_buffer: int = 0
    ) -> None:
        """`early` is sent together with the request."""
        target = urlsplit(url)
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect((target.hostname, target.port))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=target.hostname)
        self.protocol = protocol
        key = base64.b64encode(os.urandom(16)).decode()
        path = target.path + (f"?{target.query}" if target.query else "")
        asked = (
            f"GET {path} HTTP/1.1\r\nHost: {target.netloc}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
        )
        self.socket.sendall(asked.encode() + early)
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.socket.recv(1)
            assert part, head
            head += part
        self.head = head.decode()
        assert " 101 " in self.head, self.head
        self._messages = Messages(ConnectionType.CLIENT)
        self.pongs: list[bytes] = []
        self.code: int | None = None
        """The code of the server's close frame."""
        self.said: dict[Any, bytearray] = defaultdict(bytearray)
        self.whole: list[bytes] = []
        self._part = bytearray()
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

    def carry(self, kind: str, content: bytes) -> None:
        """Send all of the data and its end while reading: an echoing command stops taking input when its output is
        full."""
        number = bytes((CHANNELS.index(kind),))
        parts = [number + content[at : at + 65536] for at in range(0, len(content), 65536)]
        parts.append(bytes((255,)) + number)
        self.socket.settimeout(0)
        try:
            for part in parts:
                left = memoryview(self._messages.send(BytesMessage(data=part)))
                while left:
                    select.select([self.socket], [self.socket], [], 1.0)
                    with contextlib.suppress(*_NOT_YET):
                        left = left[self.socket.send(left) :]
                    self._turn()
        finally:
            self.socket.settimeout(PATIENCE_S)

    def raw(self, content: bytes) -> None:
        self.socket.sendall(self._messages.send(BytesMessage(data=content)))

    def ping(self, payload: bytes = b"") -> None:
        self.socket.sendall(self._messages.send(Ping(payload=payload)))

    def wait(self, ready: Callable[[], bool]) -> None:
        until(ready, self.socket.fileno(), lambda: False, self._turn)

    def _turn(self) -> None:
        try:
            received = self.socket.recv(65536)
            if isinstance(self.socket, ssl.SSLSocket):  # TLS may hold bytes that select does not see
                while self.socket.pending():
                    received += self.socket.recv(65536)
        except _NOT_YET:
            return
        except ConnectionResetError:
            received = b""
        if not received:
            self.over = True
            return
        self._messages.receive_data(received)
        for event in self._messages.events():
            if isinstance(event, BytesMessage | TextMessage):
                self._part += event.data.encode() if isinstance(event.data, str) else bytes(event.data)
                if event.message_finished:
                    message, self._part = bytes(self._part), bytearray()
                    self._take(message)
            elif isinstance(event, Pong):
                self.pongs.append(bytes(event.payload))
            elif isinstance(event, CloseConnection):
                self.over, self.code = True, int(event.code)

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

    def finish(self) -> dict[Any, bytearray]:
        """Read until the end of the session."""
        self.wait(lambda: self.over)
        self.close()
        return self.said

    def close(self) -> None:
        self.socket.close()
