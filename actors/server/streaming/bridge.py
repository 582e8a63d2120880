"""A client's WebSocket that ends here, and a runtime's connection of another protocol: how both begin and end.

What goes over is Translation's and Tunnel's. When the client is gone the runtime's connection is closed, so that the
runtime ends what ran for it; when the runtime has said all, the client is told so and may take its time to read it.
Imported, with wsproto, when the first session begins.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Cancelled, first_of
from actors._base.messaging.timers import Timer
from actors._net.stream import Stream
from actors._net.streaming.spdy import ProtocolError
from actors._net.streaming.websocket import WebSocket, proof
from actors._net.watch import Watch
from actors.server.streaming.proxy import BLOCK

log = logging.getLogger(__name__)

LEAVE_S = 10.0
"""For a client that has closed, or broken the protocol, to take what is on its way and hang up."""
FINISH_S = 900.0
"""For a client that was told the end to read up to it, as in the kubelet."""


@dataclass
class Ends:
    """Both connections after their upgrades, with what had come by then."""

    client: Stream
    early: bytes
    runtime: Stream
    rest: bytes
    idle_s: float
    """After so long without a byte of either it is over; 0 for never."""


class Watched:
    """A stream whose reading is a sign of life, and of which something has come already."""

    def __init__(self, stream: Stream, early: bytes, watch: Watch) -> None:
        self._stream, self._early, self._watch = stream, early, watch

    async def read(self) -> bytes:
        """What has come; empty at the end. Raises OSError."""
        early, self._early = self._early, b""
        received = early or await self._stream.read(BLOCK)
        self._watch.touch()
        return received

    async def write(self, data: bytes) -> None:
        """Raises OSError."""
        await self._stream.write(data)


class Bridge:
    """One session. A direction reads on once the other side has taken what was read, so each holds a block or two."""

    def __init__(self, ends: Ends, *, text: bool = True) -> None:
        """Without `text` the client is to send binary messages alone."""
        self._ends, self._loop = ends, ends.client.loop
        self._gone: Future[None] = Future()
        self._over: Future[None] = Future()
        self._timers: list[Timer] = []
        self._unexpected: Exception | None = None
        self._watch = Watch(self._loop, ends.client, ends.idle_s, lambda: self._gone.set(None))
        self._websocket = WebSocket(
            Watched(ends.client, ends.early, self._watch),
            b"",
            text=text,
            on_ping=self._on_ping,
            on_close=lambda: self._cut_in(LEAVE_S, ends.client),
        )
        self._runtime = Watched(ends.runtime, ends.rest, self._watch)

    async def run(self, key: str, protocol: str) -> None:
        """Until either end has enough. `key` is what the client's handshake is answered by."""
        runtime, client = self._ends.runtime, self._ends.client
        tasks = []
        try:
            await client.write(_agreement(key, protocol))
            for way in self._ways():
                tasks.append(self._loop.spawn(way, "bridge"))
                tasks[-1].add_done_callback(self._on_end)
            await first_of(self._over, self._gone)
            if not self._gone.done():
                await self._finish()
            if self._unexpected is not None:
                raise self._unexpected
        except OSError as error:
            log.debug("the client of a WebSocket session is gone: %s", error)
        finally:
            self._watch.cancel()
            for timer in self._timers:
                timer.cancel()
            for task in tasks:
                task.cancel()
            letting_go = self._loop.spawn(runtime.let_go(), "bridge")
        await client.end()
        await letting_go

    def _on_end(self, task: Future[None]) -> None:
        """What is wrong with one session is its caller's to say, and does not end the others."""
        try:
            task.result(0)
        except Cancelled:
            pass
        except Exception as error:
            self._unexpected = error
            self._gone.set(None)

    def _cut_in(self, seconds: float, stream: Stream) -> Timer:
        timer = self._loop.call_later(seconds, stream.abort)
        self._timers.append(timer)
        return timer

    async def _finish(self) -> None:
        """The runtime has said all: what the client still sends is thrown away, until it leaves."""
        self._ends.runtime.abort()
        self._cut_in(FINISH_S, self._ends.client)
        await self._last_words()
        await self._websocket.close()
        await self._gone

    # Both directions

    def _ways(self) -> list[Coroutine[Any, None, None]]:
        return [self._out(), self._in()]

    async def _out(self) -> None:
        try:
            await self._from_runtime()
        except (OSError, ProtocolError) as error:
            log.debug("a WebSocket session: %s", error)
            self._on_trouble(str(error))
        finally:
            self._over.set(None)

    async def _in(self) -> None:
        try:
            await self._from_client()
        except OSError as error:
            log.debug("the client of a WebSocket session is gone: %s", error)
        finally:
            self._gone.set(None)

    async def _to_client(self, sending: Coroutine[Any, None, None]) -> None:
        """A client that cannot be written to is gone, and that is no trouble with the runtime. Raises OSError."""
        try:
            await sending
        except OSError:
            self._gone.set(None)
            raise

    # What goes over

    async def _from_runtime(self) -> None:
        """Until it has said all. Raises OSError, ProtocolError."""
        raise NotImplementedError

    async def _from_client(self) -> None:
        """Until it is gone, also when what it sends is of no use any more. Raises OSError."""
        raise NotImplementedError

    async def _last_words(self) -> None:
        """What the client is told at the end. Raises OSError."""

    def _on_ping(self) -> None:
        """The client lives; it has its answer."""

    def _on_trouble(self, why: str) -> None:
        """The runtime's side is broken."""


def _agreement(key: str, protocol: str) -> bytes:
    chosen = f"Sec-WebSocket-Protocol: {protocol}\r\n" if protocol else ""
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {proof(key)}\r\n{chosen}\r\n"
    ).encode()
