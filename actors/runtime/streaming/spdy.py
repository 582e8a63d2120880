"""A remote command's streams over SPDY, on the server's side."""

from __future__ import annotations

from collections import deque

from actors._net.streaming.spdy import Data, Event, Opened, ProtocolError, Reset
from actors._net.streaming.spdylink import Link
from actors.runtime.streaming.limits import MOST_WAITING, PART
from actors.runtime.streaming.remotecommand import GONE, Message


class SpdyChannels:
    """The streams of a remote command; the header `streamType` names each."""

    def __init__(self, link: Link, expected: frozenset[str]) -> None:
        self._link = link
        self._expected = expected
        self._kinds: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._early: deque[Message] = deque()
        """Messages that came before the last stream, MOST_WAITING at most. Clients open all streams first."""

    async def ready(self) -> bool:
        """Wait for all expected streams; return False when the client leaves. Raises OSError, ProtocolError."""
        waiting = 0
        while self._numbers.keys() != self._expected:
            event = await self._link.event()
            if event is None:
                return False
            if (message := await self._on(event)) is not None:
                self._early.append(message)
                waiting += len(message.content) + PART
            if waiting > MOST_WAITING:  # its other streams can come only behind these bytes, so it cannot wait
                raise ProtocolError(f"more than {MOST_WAITING} bytes came before the streams of the command")
        return True

    async def receive(self) -> Message:
        """The next message. Raises OSError, ProtocolError."""
        while True:
            if self._early:
                return self._early.popleft()
            event = await self._link.event()
            if event is None:
                return GONE
            if (message := await self._on(event)) is not None:
                return message

    async def _on(self, event: Event) -> Message | None:
        if isinstance(event, Opened):
            await self._open(event)
        elif isinstance(event, Data) and (kind := self._kinds.get(event.stream)) is not None:
            return Message(kind, event.content, event.end)
        elif isinstance(event, Reset) and (kind := self._kinds.get(event.stream)) is not None:
            return Message(kind, b"", end=True)
        return None

    async def _open(self, event: Opened) -> None:
        kind = event.headers.get("streamtype", "")
        if kind not in self._expected or kind in self._numbers:
            await self._link.send(self._link.session.reset(event.stream))
            return
        self._kinds[event.stream] = kind
        self._numbers[kind] = event.stream
        await self._link.accept(event.stream)

    async def send(self, kind: str, content: bytes) -> None:
        """Send on a stream. Raises OSError."""
        await self._link.send(self._link.session.data(self._numbers[kind], content))

    async def end(self, kind: str) -> None:
        """End a stream. Raises OSError."""
        await self._link.send(self._link.session.data(self._numbers[kind], b"", end=True))

    async def close(self) -> None:
        """End the session. Raises OSError."""
        await self._link.send(self._link.session.go_away())
