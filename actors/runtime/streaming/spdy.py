"""SPDY as the server of a session speaks it: frames over a socket, or over the messages of a WebSocket."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from actors._base.tasks import Gate
from actors._net.spdy import Data, Event, Opened, Pinged, Reset, Session
from actors.runtime.streaming.remotecommand import GONE, Message


class Transport(Protocol):
    """Bytes both ways."""

    async def read(self) -> bytes:
        """What has come; empty at the end. Raises OSError."""
        ...

    async def write(self, data: bytes) -> None:
        """Raises OSError."""
        ...


class Link:
    """A transport with SPDY on it. One reader; any number of writers."""

    def __init__(self, transport: Transport, early: bytes) -> None:
        """`early` has come already. Raises ProtocolError."""
        self.session = Session()
        self._transport = transport
        self._gate = Gate(1)
        self._events = deque(self.session.feed(early))

    async def event(self) -> Event | None:
        """The next that is not answered here; None at the end. Raises OSError, ProtocolError."""
        while True:
            while self._events:
                event = self._events.popleft()
                if not isinstance(event, Pinged):
                    return event
                await self.send(event.answer)
            received = await self._transport.read()
            if not received:
                return None
            self._events.extend(self.session.feed(received))

    async def send(self, frame: bytes) -> None:
        """Raises OSError."""
        async with self._gate:
            await self._transport.write(frame)

    async def accept(self, stream: int) -> None:
        """Say that a stream is taken: packed in the order in which it is sent. Raises OSError."""
        async with self._gate:
            await self._transport.write(self.session.accept(stream))


class SpdyChannels:
    """The streams of a remote command, told apart by the header `streamType`."""

    def __init__(self, link: Link, expected: frozenset[str]) -> None:
        self._link = link
        self._expected = expected
        self._kinds: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._early: deque[Message] = deque()

    async def ready(self) -> bool:
        """Until the client has opened all that it is to have; whether it has. Raises OSError, ProtocolError."""
        while self._numbers.keys() != self._expected:
            event = await self._link.event()
            if event is None:
                return False
            if (message := await self._on(event)) is not None:
                self._early.append(message)
        return True

    async def receive(self) -> Message:
        """What comes next. Raises OSError, ProtocolError."""
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
        """Raises OSError."""
        await self._link.send(self._link.session.data(self._numbers[kind], content))

    async def end(self, kind: str) -> None:
        """Nothing more comes there. Raises OSError."""
        await self._link.send(self._link.session.data(self._numbers[kind], b"", end=True))

    async def close(self) -> None:
        """Nothing more comes at all. Raises OSError."""
        await self._link.send(self._link.session.go_away())
