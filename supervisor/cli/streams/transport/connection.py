"""An SPDY connection to a runtime's streaming server, with its streams. For one thread."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from actors._net.streaming.spdy import Data, Pinged, Reset, Session

CONNECT_S = 10.0
BLOCK = 64 * 1024
MAX_UNSENT = 256 * 1024
"""Bytes that may wait for the runtime before input is read no further."""


class StreamingError(Exception):
    """A failure of the streaming server. The message has the reason."""


class Connection:
    """A non-blocking connection. Poll `fileno` for reading, and for writing while `waiting` is not 0."""

    def __init__(self, url: str, protocol: str) -> None:
        """Connect and upgrade. Raises StreamingError."""
        target = urlsplit(url)
        host, port = target.hostname or "127.0.0.1", target.port or 80
        self._session = Session()
        self._out = bytearray()
        try:
            self._socket = socket.create_connection((host, port), CONNECT_S)
            try:
                rest = self._upgrade(f"{target.path}?{target.query}".rstrip("?"), f"{host}:{port}", protocol)
            except BaseException:
                self._socket.close()
                raise
        except OSError as error:
            raise StreamingError(f"cannot reach the runtime's streaming server {host}:{port}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._early = self._session.feed(rest)

    def _upgrade(self, path: str, host: str, protocol: str) -> bytes:
        self._socket.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            f"X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        said = b""
        while b"\r\n\r\n" not in said:
            part = self._socket.recv(BLOCK)
            if not part:
                raise StreamingError("the runtime's streaming server closed the connection")
            said += part
        head, _, rest = said.partition(b"\r\n\r\n")
        if head.split(b" ", 2)[1] != b"101":
            raise StreamingError(f"the runtime refused: {(rest or head).decode(errors='replace').strip()}")
        return rest

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    @property
    def waiting(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._out)

    def open(self, headers: Mapping[str, str]) -> int:
        """Open a stream; returns its number."""
        number, frame = self._session.open(headers)
        self._send(frame)
        return number

    def write(self, stream: int, content: bytes, *, end: bool = False) -> None:
        """Send bytes to a stream, or its end."""
        self._send(self._session.data(stream, content, end=end))

    def reset(self, stream: int) -> None:
        """Reset a stream."""
        self._send(self._session.reset(stream))

    def _send(self, frame: bytes) -> None:
        self._out += frame
        self.flush()

    def flush(self) -> None:
        """Send waiting bytes as far as the socket takes them. After the server has closed, drop them.

        A command may end before it has read its input. Its output can still be read then.
        """
        with contextlib.suppress(BlockingIOError):
            try:
                while self._out:
                    del self._out[: self._socket.send(self._out)]
            except ConnectionError:
                self._out.clear()

    def read(self) -> list[Data | Reset] | None:
        """Frames for streams; None at the end."""
        events, self._early = self._early, []
        with contextlib.suppress(BlockingIOError):
            received = self._received()
            if not received and not events:
                return None
            events += self._session.feed(received)
        for event in events:
            if isinstance(event, Pinged):
                self._send(event.answer)
        return [event for event in events if isinstance(event, Data | Reset)]

    def _received(self) -> bytes:
        try:
            return self._socket.recv(BLOCK)
        except ConnectionError:
            return b""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
