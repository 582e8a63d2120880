"""The server's side of a WebSocket after its handshake: messages, numbered channels in them, or a byte stream.

A violation of the protocol ends the connection with its close code (RFC 6455, 7.4.1).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import LocalProtocolError

from actors._base.messaging.tasks import Semaphore
from actors._net.streaming.spdylink import Transport

MAX_WHOLE = 1024 * 1024
"""Limit of a message that is delivered as a whole."""
NORMAL, WRONG_TYPE, AGAINST_RULES, TOO_BIG = 1000, 1003, 1008, 1009
"""Close codes."""
_NO_CODE = 1005
"""wsproto's code for a close frame without a code; it must not be sent."""
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


def proof(key: str) -> str:
    """Sec-WebSocket-Accept for a Sec-WebSocket-Key."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


class Piece(NamedTuple):
    """A received part of a message."""

    content: bytes
    first: bool
    last: bool


class WebSocket:
    """Messages over a connection. One coroutine reads; any number write."""

    def __init__(
        self,
        transport: Transport,
        early: bytes,
        *,
        text: bool = True,
        on_ping: Callable[[], object] = lambda: None,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        """`early` was received before. Without `text` only binary messages are accepted.

        `on_close` is called when the client has closed or violated the protocol; nothing is received afterwards.
        """
        self._transport = transport
        self._protocol = Connection(ConnectionType.SERVER, trailing_data=early)
        self._text, self._on_ping, self._on_close = text, on_ping, on_close
        self._gate = Semaphore(1)
        self._pieces: deque[Piece] = deque()
        self._first = True
        self._closed = False

    async def receive(self) -> Piece | None:
        """The next part of a message; None at the end. Raises OSError."""
        while not self._pieces:
            await self._take()
            if self._closed and not self._pieces:
                return None
            if not self._pieces:
                received = await self._transport.read()
                if not received:
                    return None
                self._protocol.receive_data(received)
        return self._pieces.popleft()

    async def _take(self) -> None:
        for event in self._protocol.events():
            if self._closed:
                return
            if isinstance(event, TextMessage) and not self._text:
                await self.fail(WRONG_TYPE, "binary messages are wanted")
            elif isinstance(event, BytesMessage | TextMessage):
                content = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
                self._pieces.append(Piece(content, self._first, event.message_finished))
                self._first = event.message_finished
            elif isinstance(event, Ping):
                self._on_ping()
                await self._send(Pong(payload=event.payload))
            elif isinstance(event, CloseConnection):  # from the client, or from wsproto for an invalid frame
                await self.fail(NORMAL if event.code == _NO_CODE else event.code, event.reason or "")

    async def whole(self, piece: Piece) -> bytes | None:
        """The whole message that begins with `piece`; None at the end, or when it is too large. Raises OSError."""
        content = bytearray(piece.content)
        while not piece.last:
            if len(content) > MAX_WHOLE:
                await self.fail(TOO_BIG, "the message is too large for its channel")
                return None
            more = await self.receive()
            if more is None:
                return None
            piece = more
            content += piece.content
        return bytes(content)

    async def send(self, content: bytes, *, text: bool = False) -> None:
        """Send one message. Raises OSError."""
        await self._send(TextMessage(data=content.decode()) if text else BytesMessage(data=content))

    async def close(self) -> None:
        """Send a close frame; the client's own one is still received. Raises OSError."""
        await self._send(CloseConnection(code=NORMAL))

    async def fail(self, code: int, why: str) -> None:
        """Close with this code and receive no more. Raises OSError."""
        self._closed = True
        self._on_close()
        if self._protocol.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            await self._send(CloseConnection(code=code, reason=why))

    async def _send(self, event: BytesMessage | TextMessage | Pong | CloseConnection) -> None:
        async with self._gate:
            try:
                data = self._protocol.send(event)
            except LocalProtocolError as error:
                raise ConnectionAbortedError(str(error)) from error
            await self._transport.write(data)


class WebSocketBytes:
    """The contents of the messages as one stream of bytes, for a tunnelled protocol."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def read(self) -> bytes:
        """Raises OSError."""
        while (piece := await self._websocket.receive()) is not None:
            if piece.content:
                return piece.content
        return b""

    async def write(self, data: bytes) -> None:
        """Raises OSError."""
        await self._websocket.send(data)


class Numbered:
    """Messages with a channel number in the first byte; in base64 protocols a digit, and text."""

    def __init__(self, websocket: WebSocket, protocol: str, undivided: frozenset[int] = frozenset()) -> None:
        """`undivided` are the channels whose messages are delivered as a whole."""
        self._websocket = websocket
        self._text = "base64" in protocol
        self._undivided = undivided
        self._current: int | None = None

    async def receive(self) -> tuple[int, bytes] | None:
        """A channel's number and received bytes; None at the end. Raises OSError."""
        while (piece := await self._websocket.receive()) is not None:
            if self._text:
                whole = await self._websocket.whole(piece)
                if whole is None:
                    return None
                try:
                    return whole[0] - ord("0"), base64.b64decode(whole[1:])
                except (IndexError, binascii.Error):
                    continue
            if piece.first:
                self._current = None
            content, begins = piece.content, self._current is None
            if begins:
                if not content:
                    continue  # the first fragment may be empty, and a whole message too
                self._current, content = content[0], content[1:]
            assert self._current is not None
            if self._current in self._undivided and begins:
                whole = await self._websocket.whole(Piece(content, first=True, last=piece.last))
                return None if whole is None else (self._current, whole)
            if content or begins:
                return self._current, content
        return None

    async def send(self, channel: int, content: bytes) -> None:
        """Raises OSError."""
        if self._text:
            await self._websocket.send(b"%d%b" % (channel, base64.b64encode(content)), text=True)
        else:
            await self._websocket.send(bytes((channel,)) + content)
