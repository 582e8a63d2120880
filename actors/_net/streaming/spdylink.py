"""SPDY over a transport: frames over a socket, or over the messages of a WebSocket. For either side of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from actors._base.messaging.tasks import Semaphore
from actors._net.streaming.spdy import Event, Pinged, Session


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

    def __init__(
        self,
        transport: Transport,
        early: bytes,
        on_ping: Callable[[bytes], Coroutine[Any, None, None]] | None = None,
    ) -> None:
        """`early` has come already; `on_ping` gets the answers to pings, instead of their being sent before anything
        else is read. Raises ProtocolError.
        """
        self.session = Session()
        self._transport = transport
        self._gate = Semaphore(1)
        self._on_ping = on_ping or self.send
        self._events = deque(self.session.feed(early))

    async def event(self) -> Event | None:
        """The next that is not answered here; None at the end. Raises OSError, ProtocolError."""
        while True:
            while self._events:
                event = self._events.popleft()
                if not isinstance(event, Pinged):
                    return event
                await self._on_ping(event.answer)
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
