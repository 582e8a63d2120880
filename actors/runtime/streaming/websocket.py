"""A remote command's streams over WebSocket, on the server's side."""

from __future__ import annotations

from actors._net.streaming.remotecommand import CHANNELS, END_OF_STREAM
from actors._net.streaming.websocket import Numbered, WebSocket
from actors.runtime.streaming.remotecommand import GONE, Message


class WebSocketChannels:
    """The streams of a remote command, on numbered channels."""

    def __init__(self, websocket: WebSocket, protocol: str, expected: frozenset[str]) -> None:
        self._websocket = websocket
        self._numbered = Numbered(websocket, protocol, frozenset({CHANNELS.index("resize"), END_OF_STREAM}))
        self._ends = protocol.startswith("v5.")
        self._expected = expected

    async def ready(self) -> bool:
        """Send an empty message, as the kubelet does, and return True. Raises OSError."""
        first = next(name for name in ("stdout", "stderr", "error") if name in self._expected)
        await self.send(first, b"")
        return True

    async def receive(self) -> Message:
        """The next message. Raises OSError."""
        while (found := await self._numbered.receive()) is not None:
            number, content = found
            if self._ends and number == END_OF_STREAM:
                if content and content[0] == CHANNELS.index("stdin"):
                    return Message("stdin", b"", end=True)
            elif 0 <= number < len(CHANNELS) and CHANNELS[number] in self._expected & {"stdin", "resize"}:
                return Message(CHANNELS[number], content, end=False)
        return GONE

    async def send(self, kind: str, content: bytes) -> None:
        """Send on a channel. Raises OSError."""
        await self._numbered.send(CHANNELS.index(kind), content)

    async def end(self, kind: str) -> None:
        """Do nothing: the server cannot end a single channel."""

    async def close(self) -> None:
        """End the session. Raises OSError."""
        await self._websocket.close()
