"""WebSocket as the server of a session speaks it: messages, the channels of a remote command in them, or bare bytes."""

from __future__ import annotations

import base64
import binascii
from collections import deque
from typing import NamedTuple

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from actors._base.tasks import Gate
from actors._net.stream import Stream
from actors.runtime.streaming.remotecommand import GONE, Message

CHANNELS = ("stdin", "stdout", "stderr", "error", "resize")
"""By their number."""
END_OF_STREAM = 255
"""Version 5: the channel on which the client says that another is at its end."""
MOST_WHOLE = 1024 * 1024
"""Of a message that is of use only as a whole."""
NORMAL = 1000


class Piece(NamedTuple):
    """A part of a message, as it comes."""

    content: bytes
    first: bool
    last: bool


class WebSocket:
    """Messages over a connection. One reader; any number of writers."""

    def __init__(self, stream: Stream, early: bytes) -> None:
        self._stream = stream
        self._protocol = Connection(ConnectionType.SERVER, trailing_data=early)
        self._gate = Gate(1)
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
                received = await self._stream.read()
                if not received:
                    return None
                self._protocol.receive_data(received)
        return self._pieces.popleft()

    async def _take(self) -> None:
        try:
            for event in self._protocol.events():
                if isinstance(event, BytesMessage | TextMessage):
                    content = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
                    self._pieces.append(Piece(content, self._first, event.message_finished))
                    self._first = event.message_finished
                elif isinstance(event, Ping):
                    await self._send(Pong(payload=event.payload))
                elif isinstance(event, CloseConnection):
                    self._closed = True
                    await self._send(event.response())
        except (RemoteProtocolError, LocalProtocolError):
            self._closed = True

    async def whole(self, piece: Piece) -> bytes | None:
        """The message that begins with `piece`; None at the end, or when it is too large. Raises OSError."""
        content = bytearray(piece.content)
        while not piece.last:
            more = await self.receive()
            if more is None or len(content) > MOST_WHOLE:
                return None
            piece = more
            content += piece.content
        return bytes(content)

    async def send(self, content: bytes, *, text: bool = False) -> None:
        """One message. Raises OSError."""
        await self._send(TextMessage(data=content.decode()) if text else BytesMessage(data=content))

    async def close(self) -> None:
        """Say that it is over. Raises OSError."""
        await self._send(CloseConnection(code=NORMAL))

    async def _send(self, event: BytesMessage | TextMessage | Pong | CloseConnection) -> None:
        async with self._gate:
            try:
                data = self._protocol.send(event)
            except LocalProtocolError as error:
                raise ConnectionAbortedError(str(error)) from error
            await self._stream.write(data)


class WebSocketBytes:
    """The messages' contents as one stream of bytes, for the protocol within."""

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
    """Channels by the first byte of each message; as text in base64 by its first digit."""

    def __init__(self, websocket: WebSocket, protocol: str, undivided: frozenset[int] = frozenset()) -> None:
        """`undivided` are the channels whose messages are of use only as a whole."""
        self._websocket = websocket
        self._text = "base64" in protocol
        self._undivided = undivided
        self._current = -1

    async def receive(self) -> tuple[int, bytes] | None:
        """A channel and what came on it; None at the end. Raises OSError."""
        while (piece := await self._websocket.receive()) is not None:
            if self._text:
                whole = await self._websocket.whole(piece)
                if whole is None:
                    return None
                try:
                    return whole[0] - ord("0"), base64.b64decode(whole[1:])
                except (IndexError, binascii.Error):
                    continue
            content = piece.content
            if piece.first:
                self._current = content[0] if content else -1
                content = content[1:]
                if self._current in self._undivided:
                    whole = await self._websocket.whole(Piece(content, first=True, last=piece.last))
                    return None if whole is None else (self._current, whole)
            if self._current >= 0 and (content or piece.first):
                return self._current, content
        return None

    async def send(self, channel: int, content: bytes) -> None:
        """Raises OSError."""
        if self._text:
            await self._websocket.send(b"%d%b" % (channel, base64.b64encode(content)), text=True)
        else:
            await self._websocket.send(bytes((channel,)) + content)


class WebSocketChannels:
    """The streams of a remote command."""

    def __init__(self, websocket: WebSocket, protocol: str, expected: frozenset[str]) -> None:
        self._websocket = websocket
        self._numbered = Numbered(websocket, protocol, frozenset({CHANNELS.index("resize"), END_OF_STREAM}))
        self._ends = protocol.startswith("v5.")
        self._expected = expected

    async def ready(self) -> bool:
        """At once; an empty message says so, as the kubelet's does. Raises OSError."""
        first = next(name for name in ("stdout", "stderr", "error") if name in self._expected)
        await self.send(first, b"")
        return True

    async def receive(self) -> Message:
        """What comes next. Raises OSError."""
        while (found := await self._numbered.receive()) is not None:
            number, content = found
            if self._ends and number == END_OF_STREAM:
                if content and content[0] == CHANNELS.index("stdin"):
                    return Message("stdin", b"", end=True)
            elif 0 <= number < len(CHANNELS) and CHANNELS[number] in self._expected & {"stdin", "resize"}:
                return Message(CHANNELS[number], content, end=False)
        return GONE

    async def send(self, kind: str, content: bytes) -> None:
        """Raises OSError."""
        await self._numbered.send(CHANNELS.index(kind), content)

    async def end(self, kind: str) -> None:
        """There are no ends of single channels from here."""

    async def close(self) -> None:
        """Nothing more comes at all. Raises OSError."""
        await self._websocket.close()
