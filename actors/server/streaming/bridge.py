"""Joins a client's WebSocket, which ends here, with the runtime's connection: start, end and clean-up of a session.

Translation and Tunnel copy the data. When the client is gone, the runtime's connection is closed, so that the runtime
ends the command. When the runtime is done, the client is told so and has FINISH_S to read the rest. Imported, with
wsproto, when the first session begins.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Cancelled, first_of
from actors._base.messaging.timers import Timer
from actors._net.client_watchdog import ClientWatchdog
from actors._net.stream import Stream
from actors._net.streaming.spdy import ProtocolError
from actors._net.streaming.websocket import WebSocket, proof
from actors.server.streaming.proxy import BLOCK

log = logging.getLogger(__name__)

LEAVE_S = 10.0
"""Time for a client that has closed, or violated the protocol, to read the rest and disconnect."""
FINISH_S = 900.0
"""Time for a client to read up to the end of the session, as in the kubelet."""


@dataclass
class Ends:
    """Both connections after their upgrades, with the bytes received so far."""

    client: Stream
    early: bytes
    runtime: Stream
    rest: bytes
    idle_s: float
    """Seconds without a byte from either side that end the session; 0 for no limit."""


class Watched:
    """A stream with bytes that were read before; each read resets the idle timer."""

    def __init__(self, stream: Stream, early: bytes, watchdog: ClientWatchdog) -> None:
        self._stream, self._early, self._watchdog = stream, early, watchdog

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises OSError."""
        early, self._early = self._early, b""
        received = early or await self._stream.read(BLOCK)
        self._watchdog.touch()
        return received

    async def write(self, data: bytes) -> None:
        """Raises OSError."""
        await self._stream.write(data)


class Bridge:
    """One session. Each direction reads on after the other side took the last block, so it holds one or two."""

    def __init__(self, ends: Ends, *, text: bool = True) -> None:
        """Without `text` the client may send binary messages only."""
        self._ends, self._loop = ends, ends.client.loop
        self._client_gone: Future[None] = Future()
        self._runtime_done: Future[None] = Future()
        self._timers: list[Timer] = []
        self._unexpected: Exception | None = None
        self._watchdog = ClientWatchdog(self._loop, ends.client, ends.idle_s, lambda: self._client_gone.set(None))
        self._websocket = WebSocket(
            Watched(ends.client, ends.early, self._watchdog),
            b"",
            text=text,
            on_ping=self._on_ping,
            on_close=lambda: self._abort_in(LEAVE_S, ends.client),
        )
        self._runtime = Watched(ends.runtime, ends.rest, self._watchdog)

    async def run(self, key: str, protocol: str) -> None:
        """Serve until either side ends. `key` is the client's Sec-WebSocket-Key."""
        runtime, client = self._ends.runtime, self._ends.client
        tasks = []
        try:
            await client.write(_agreement(key, protocol))
            for direction in self._directions():
                tasks.append(self._loop.spawn(direction, "bridge"))
                tasks[-1].add_done_callback(self._on_end)
            await first_of(self._runtime_done, self._client_gone)
            if not self._client_gone.done():
                await self._finish()
            if self._unexpected is not None:
                raise self._unexpected
        except OSError as error:
            log.debug("the client of a WebSocket session is gone: %s", error)
        finally:
            self._watchdog.cancel()
            for timer in self._timers:
                timer.cancel()
            for task in tasks:
                task.cancel()
            closing = self._loop.spawn(runtime.close_after_sending(), "bridge")
        await client.end()
        await closing

    def _on_end(self, task: Future[None]) -> None:
        """Keep an exception for `run` to raise, so that it ends this session and no other."""
        try:
            task.result(0)
        except Cancelled:
            pass
        except Exception as error:
            self._unexpected = error
            self._client_gone.set(None)

    def _abort_in(self, seconds: float, stream: Stream) -> Timer:
        timer = self._loop.call_later(seconds, stream.abort)
        self._timers.append(timer)
        return timer

    async def _finish(self) -> None:
        """Tell the client the end, and discard what it still sends until it disconnects."""
        self._ends.runtime.abort()
        self._abort_in(FINISH_S, self._ends.client)
        await self._send_outcome()
        await self._websocket.close()
        await self._client_gone

    # Both directions

    def _directions(self) -> list[Coroutine[Any, None, None]]:
        return [self._out(), self._in()]

    async def _out(self) -> None:
        try:
            await self._from_runtime()
        except (OSError, ProtocolError) as error:
            log.debug("a WebSocket session: %s", error)
            self._on_failure(str(error))
        finally:
            self._runtime_done.set(None)

    async def _in(self) -> None:
        try:
            await self._from_client()
        except OSError as error:
            log.debug("the client of a WebSocket session is gone: %s", error)
        finally:
            self._client_gone.set(None)

    async def _to_client(self, sending: Coroutine[Any, None, None]) -> None:
        """Send to the client. A failure means that the client is gone, not the runtime. Raises OSError."""
        try:
            await sending
        except OSError:
            self._client_gone.set(None)
            raise

    # For the subclasses

    async def _from_runtime(self) -> None:
        """Copy until the runtime is done. Raises OSError, ProtocolError."""
        raise NotImplementedError

    async def _from_client(self) -> None:
        """Read until the client is gone, also when its data has no receiver any more. Raises OSError."""
        raise NotImplementedError

    async def _send_outcome(self) -> None:
        """Send the client the outcome. Raises OSError."""

    def _on_ping(self) -> None:
        """A ping came, and its answer was sent."""

    def _on_failure(self, why: str) -> None:
        """The runtime's connection failed for this reason."""


def _agreement(key: str, protocol: str) -> bytes:
    chosen = f"Sec-WebSocket-Protocol: {protocol}\r\n" if protocol else ""
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {proof(key)}\r\n{chosen}\r\n"
    ).encode()
