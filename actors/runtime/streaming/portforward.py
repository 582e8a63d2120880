"""Port-forward sessions: connections to ports in a sandbox's network."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task, gather
from actors._net.loop import Loop
from actors._net.stream import Stream, connect, tcp_socket
from actors._net.streaming.spdy import Data, Event, Opened, ProtocolError, Reset
from actors._net.streaming.spdylink import Link
from actors._net.streaming.websocket import Numbered
from actors._net.watch import Watch
from actors.runtime.model.kernel import in_namespace
from actors.runtime.streaming.remotecommand import BLOCK

log = logging.getLogger(__name__)
CONNECT_S = 30.0
MOST_WAITING = 1024 * 1024
"""Bytes of one connection that the pod has not taken; the client's whole session then waits, as SPDY has one flow."""
ADDRESSES = ("127.0.0.1", "::1")
"""A pod's programs listen here; IPv4 is tried first, as in other runtimes."""


class Inbox:
    """Bytes from a client for one connection, in order."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._bytes = 0
        self._ended = False
        self._changed: Future[None] = Future()

    async def put(self, content: bytes) -> None:
        """Add bytes, once there is room."""
        while self._bytes >= MOST_WAITING and not self._ended:
            await self._change()
        if content and not self._ended:
            self._parts.append(content)
            self._bytes += len(content)
            self._tell()

    async def get(self) -> bytes:
        """The next bytes; empty at the end."""
        while not self._parts:
            if self._ended:
                return b""
            await self._change()
        content = self._parts.popleft()
        self._bytes -= len(content)
        self._tell()
        return content

    def end(self) -> None:
        """The client sends no more."""
        self._ended = True
        self._tell()

    def drop(self) -> None:
        """The pod takes no more."""
        self._parts.clear()
        self._bytes = 0
        self.end()

    def _tell(self) -> None:
        changed, self._changed = self._changed, Future()
        changed.set(None)

    def _change(self) -> Future[None]:
        return self._changed


class Output(Protocol):
    """Carries a connection's bytes to the client. All methods raise OSError when the client has gone."""

    async def send(self, content: bytes) -> None:
        """Send bytes of the pod."""
        ...

    async def send_error(self, why: str) -> None:
        """Send a message on the error stream."""
        ...

    async def end(self) -> None:
        """End the streams of the connection."""
        ...


class Ports:
    """Connects to ports in a sandbox's network."""

    def __init__(self, loop: Loop, namespace: str, sandbox_id: str) -> None:
        """`namespace` is the path of the network namespace; empty for the machine's."""
        self._loop, self._namespace, self._sandbox_id = loop, namespace, sandbox_id

    async def carry(self, port: int, inbox: Inbox, output: Output) -> None:
        """Carry one connection until its end; report errors in the pod's network to the client."""
        try:
            try:
                connection = await self._connect(port)
            except OSError as error:
                why = f"error forwarding port {port} to pod sandbox {self._sandbox_id}: {error.strerror or error}"
                await output.send_error(why)
                return
            try:
                ways = (self._to_pod(connection, inbox), self._from_pod(connection, output))
                tasks = [self._loop.spawn(way, "port-forward") for way in ways]
                try:
                    await gather(*tasks)
                finally:
                    for task in tasks:
                        task.cancel()
            finally:
                connection.close()
        except OSError as error:
            log.debug("port-forward to port %d of %s: %s", port, self._sandbox_id, error)
        finally:
            inbox.drop()
            with contextlib.suppress(OSError):
                await output.end()

    async def _to_pod(self, connection: Stream, inbox: Inbox) -> None:
        with contextlib.suppress(OSError):  # the pod takes no more; its output still flows
            while content := await inbox.get():
                await connection.write(content)
            connection.end_writing()
        inbox.drop()

    async def _from_pod(self, connection: Stream, output: Output) -> None:
        try:
            while content := await connection.read(BLOCK):
                await output.send(content)
        except ConnectionResetError:
            log.debug("the pod has reset a connection")
        await output.end()

    async def _connect(self, port: int) -> Stream:
        """Connect to the port. Raises the first address's OSError when both fail."""
        first: OSError | None = None
        for address in ADDRESSES:
            try:
                return await connect(self._loop, address, port, CONNECT_S, self._socket)
            except OSError as error:
                first = first or error
        assert first is not None
        raise first

    def _socket(self, address: str) -> socket.socket:
        """A socket of the sandbox's network; it may be used in any thread."""
        return in_namespace(self._namespace, lambda: tcp_socket(address)) if self._namespace else tcp_socket(address)


# SPDY


@dataclass
class Pair:
    """The data and error streams of one connection."""

    link: Link
    port: int
    inbox: Inbox = field(default_factory=Inbox)
    data: int = 0
    error: int = 0
    ended: bool = False

    async def send(self, content: bytes) -> None:
        """Send bytes of the pod."""
        await self.link.send(self.link.session.data(self.data, content))

    async def send_error(self, why: str) -> None:
        """Send a message on the error stream."""
        await self.link.send(self.link.session.data(self.error, why.encode()))

    async def end(self) -> None:
        """End both streams, once."""
        if not self.ended:
            self.ended = True
            for stream in (self.data, self.error):
                await self.link.send(self.link.session.data(stream, b"", end=True))


class SpdyForward:
    """A SPDY session, whose client opens a pair of streams for each connection."""

    def __init__(self, loop: Loop, link: Link, ports: Ports, watch: Watch) -> None:
        self._loop, self._link, self._ports, self._watch = loop, link, ports, watch
        self._requests: dict[str, Pair] = {}
        self._pairs: dict[int, Pair] = {}
        self._carriers: set[Task[None]] = set()

    async def run(self) -> None:
        """Run until the client leaves."""
        try:
            with contextlib.suppress(OSError, ProtocolError):
                while (event := await self._link.event()) is not None:
                    self._watch.touch()
                    await self._on(event)
        finally:
            for carrier in list(self._carriers):
                carrier.cancel()

    async def _on(self, event: Event) -> None:
        if isinstance(event, Opened):
            await self._open(event)
            return
        if not isinstance(event, Data | Reset):
            return
        pair = self._pairs.get(event.stream)
        if pair is None or event.stream != pair.data:
            return
        if isinstance(event, Data):
            await pair.inbox.put(event.content)
        if isinstance(event, Reset) or event.end:
            pair.inbox.end()

    async def _open(self, event: Opened) -> None:
        kind, port = event.headers.get("streamtype", ""), event.headers.get("port", "")
        if kind not in ("data", "error") or not (port.isdecimal() and 0 < int(port) < 65536):
            await self._link.send(self._link.session.reset(event.stream))
            return
        # Clients without a request ID open the error stream first and the data stream right after it.
        fallback = event.stream if kind == "error" else event.stream - 2
        request = event.headers.get("requestid") or str(fallback)
        pair = self._requests.setdefault(request, Pair(self._link, int(port)))
        setattr(pair, kind, event.stream)
        self._pairs[event.stream] = pair
        await self._link.accept(event.stream)
        if pair.data and pair.error:
            del self._requests[request]
            carrier = self._loop.spawn(self._carry(pair), "connection")
            if not carrier.done():
                self._carriers.add(carrier)
                carrier.add_done_callback(self._carriers.discard)

    async def _carry(self, pair: Pair) -> None:
        try:
            await self._ports.carry(pair.port, pair.inbox, pair)
        finally:
            for stream in (pair.data, pair.error):
                self._pairs.pop(stream, None)


# WebSocket


@dataclass
class Channel:
    """One port of a WebSocket session: channel 2n carries its bytes, 2n + 1 its errors."""

    numbered: Numbered
    number: int

    async def send(self, content: bytes) -> None:
        """Send bytes of the pod."""
        await self.numbered.send(self.number, content)

    async def send_error(self, why: str) -> None:
        """Send a message on the error channel."""
        await self.numbered.send(self.number + 1, why.encode())

    async def end(self) -> None:
        """Do nothing: a single channel has no end."""


async def forward_by_websocket(
    loop: Loop, numbered: Numbered, ports: Ports, wanted: tuple[int, ...], watch: Watch
) -> None:
    """Run a session with one connection for each requested port. Raises OSError."""
    inboxes = [Inbox() for _ in wanted]
    for index, port in enumerate(wanted):
        for channel in (2 * index, 2 * index + 1):
            await numbered.send(channel, port.to_bytes(2, "little"))
    carriers = [
        loop.spawn(ports.carry(port, inboxes[index], Channel(numbered, 2 * index)), "connection")
        for index, port in enumerate(wanted)
    ]
    reader = loop.spawn(_read(numbered, inboxes, watch.touch), "client")
    over: Future[None] = Future()
    reader.add_done_callback(lambda _: over.set(None))
    everything = loop.spawn(_all(carriers), "connections")
    everything.add_done_callback(lambda _: over.set(None))
    try:
        await over
    finally:
        for task in (reader, everything, *carriers):
            task.cancel()


async def _all(carriers: list[Task[None]]) -> None:
    await gather(*carriers)


async def _read(numbered: Numbered, inboxes: list[Inbox], touch: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        while (found := await numbered.receive()) is not None:
            touch()
            channel, content = found
            if channel % 2 == 0 and channel // 2 < len(inboxes):
                await inboxes[channel // 2].put(content)
