"""A SPDY session over a transport, for clients and servers: a socket, or the messages of a WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from actors._base.messaging.tasks import Semaphore
from actors._net.streaming.spdy import Event, Pinged, Session


class Transport(Protocol):
    """A connection for bytes."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises OSError."""
        ...

    async def write(self, data: bytes) -> None:
        """Raises OSError."""
        ...


class Link:
    """A SPDY session on a transport. One coroutine reads; any number write."""

    def __init__(
        self,
        transport: Transport,
        early: bytes,
        on_ping: Callable[[bytes], Coroutine[Any, None, None]] | None = None,
    ) -> None:
        """`early` was received before. `on_ping` gets the answers to pings; by default they are sent before the next
        event.
        """
        self.session = Session()
        self._transport = transport
        self._gate = Semaphore(1)
        self._on_ping = on_ping or self.send
        self.session.receive(early)

    async def event(self) -> Event | None:
        """The next event other than a ping; None at the end. Raises OSError, ProtocolError."""
        while True:
            while (event := self.session.next_event()) is not None:
                if not isinstance(event, Pinged):
                    return event
                await self._on_ping(event.answer)
            received = await self._transport.read()
            if not received:
                return None
            self.session.receive(received)

    async def send(self, frame: bytes) -> None:
        """Raises OSError."""
        async with self._gate:
            await self._transport.write(frame)

    async def accept(self, stream: int) -> None:
        """Accept a stream of the other side. Raises OSError."""
        async with self._gate:
            await self._transport.write(self.session.accept(stream))  # compressed within the lock, in sending order
