"""Port-forward sessions: connections to ports in a sandbox's network."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task, gather
from actors._net.client_watchdog import ClientWatchdog
from actors._net.loop import Loop
from actors._net.stream import Stream, connect, tcp_socket
from actors._net.streaming.spdy import REFUSED_STREAM, Data, Event, Opened, ProtocolError, Reset
from actors._net.streaming.spdylink import Link
from actors._net.streaming.websocket import Numbered
from actors.runtime.model.namespace_threads import in_namespace
from actors.runtime.streaming.limits import MOST_NAME, MOST_PAIRS, MOST_WAITING, PART, Limits, Room
from actors.runtime.streaming.remotecommand import BLOCK

log = logging.getLogger(__name__)
CONNECT_S = 30.0
MATCH_S = 30.0
"""Time for a client to open the other stream of a pair, as in the kubelet and containerd."""
ADDRESSES = ("127.0.0.1", "::1")
"""A pod's programs listen here; IPv4 is tried first, as in other runtimes."""


class Inbox:
    """Bytes from a client for one connection, in order. They wait until the pod has taken them."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._parts: deque[bytes] = deque()
        self._bytes = 0
        self._taken = 0
        """The share of the part that `get` returned last."""
        self._ended = False
        self._changed: Future[None] = Future()

    async def put(self, content: bytes) -> None:
        """Add bytes, once there is room."""
        while (self._bytes >= MOST_WAITING or self._room.full) and not self._ended:
            await self._room.change()
        if content and not self._ended:
            self._parts.append(content)
            self._bytes += len(content) + PART
            self._room.add(len(content) + PART)
            self._tell()

    async def get(self) -> bytes:
        """The next bytes; empty at the end. The ones before are counted as taken."""
        self._free(self._taken)
        while not self._parts:
            if self._ended:
                return b""
            await self._changed
        content = self._parts.popleft()
        self._taken = len(content) + PART
        return content

    def end(self) -> None:
        """The client sends no more."""
        self._ended = True
        self._tell()

    def drop(self) -> None:
        """The pod takes no more."""
        self._parts.clear()
        self.end()
        self._free(self._bytes)

    def _free(self, count: int) -> None:
        self._taken = 0
        self._bytes -= count
        self._room.remove(count)

    def _tell(self) -> None:
        changed, self._changed = self._changed, Future()
        changed.set(None)


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


@dataclass(eq=False)
class Pair:
    """The data and error streams of one connection."""

    link: Link
    request: str
    port: int
    inbox: Inbox
    data: int = 0
    error: int = 0
    ended: bool = False
    task: Task[None] | None = None
    """Waits for the other stream, then carries the connection."""

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
    """A SPDY session, whose client opens a pair of streams for each connection. Streams beyond a limit are reset."""

    def __init__(self, loop: Loop, link: Link, ports: Ports, watchdog: ClientWatchdog, limits: Limits) -> None:
        self._loop, self._link, self._ports, self._watchdog = loop, link, ports, watchdog
        self._descriptors, self._room = limits.descriptors, Room(limits.waiting)
        self._pairs: set[Pair] = set()
        self._requests: dict[str, Pair] = {}
        """The pairs that lack a stream, by request ID."""
        self._streams: dict[int, Pair] = {}

    async def run(self) -> None:
        """Run until the client leaves."""
        try:
            with contextlib.suppress(OSError, ProtocolError):
                while (event := await self._link.event()) is not None:
                    self._watchdog.touch()
                    await self._on(event)
        finally:
            for pair in list(self._pairs):
                pair.ended = True  # a client that has left reads no end: a task that sends one would wait for ever
                self._cancel(pair)
                self._drop(pair)

    async def _on(self, event: Event) -> None:
        if isinstance(event, Opened):
            await self._open(event)
            return
        if not isinstance(event, Data | Reset) or (pair := self._streams.get(event.stream)) is None:
            return
        if isinstance(event, Reset):
            self._reset(event.stream, pair)
        elif event.stream == pair.data:
            await pair.inbox.put(event.content)
            if event.end:
                pair.inbox.end()

    def _reset(self, stream: int, pair: Pair) -> None:
        """Forget a pair that lacks a stream; end a connection whose data stream was reset, as the kubelet does."""
        del self._streams[stream]
        unmatched = self._requests.get(pair.request) is pair
        if unmatched or stream == pair.data:
            self._cancel(pair)
        if unmatched:
            self._drop(pair)

    async def _open(self, event: Opened) -> None:
        kind, port = event.headers.get("streamtype", ""), event.headers.get("port", "")
        # Clients without a request ID open the error stream first and the data stream right after it.
        fallback = event.stream if kind == "error" else event.stream - 2
        request = event.headers.get("requestid") or str(fallback)
        valid = kind in ("data", "error") and _is_port(port) and len(request) <= MOST_NAME
        pair = self._pair(request, int(port)) if valid and event.stream and event.stream not in self._streams else None
        if pair is None or getattr(pair, kind):  # the pair has one of this kind
            await self._link.send(self._link.session.reset(event.stream, REFUSED_STREAM))
            return
        setattr(pair, kind, event.stream)
        self._streams[event.stream] = pair
        if pair.data and pair.error:  # before the client can be slow to take the reply
            del self._requests[request]
            self._cancel(pair)
        await self._link.accept(event.stream)
        if pair.data and pair.error:
            pair.task = self._loop.spawn(self._carry(pair), "connection")

    def _pair(self, request: str, port: int) -> Pair | None:
        """The pair that lacks a stream of this request, else a new one; None when there are too many."""
        if (pair := self._requests.get(request)) is not None:
            return pair
        if len(self._pairs) >= MOST_PAIRS or not self._descriptors.take_for_pair():
            return None
        pair = self._requests[request] = Pair(self._link, request, port, Inbox(self._room))
        self._pairs.add(pair)
        pair.task = self._loop.spawn(self._expire(pair), "unmatched stream")
        return pair

    async def _expire(self, pair: Pair) -> None:
        await self._loop.sleep(MATCH_S)
        del self._requests[pair.request]
        pair.inbox.drop()
        with contextlib.suppress(OSError):
            await self._link.send(self._link.session.reset(pair.data or pair.error))
        self._drop(pair)

    async def _carry(self, pair: Pair) -> None:
        try:
            await self._ports.carry(pair.port, pair.inbox, pair)
        finally:
            self._drop(pair)

    @staticmethod
    def _cancel(pair: Pair) -> None:
        if pair.task is not None:
            pair.task.cancel()

    def _drop(self, pair: Pair) -> None:
        """Forget the pair, once."""
        if pair not in self._pairs:
            return
        self._pairs.discard(pair)
        self._descriptors.give(1)
        pair.inbox.drop()
        if self._requests.get(pair.request) is pair:
            del self._requests[pair.request]
        for stream in (pair.data, pair.error):
            if self._streams.get(stream) is pair:
                del self._streams[stream]


def _is_port(text: str) -> bool:
    return len(text) <= 5 and text.isdecimal() and 0 < int(text) < 65536


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
    loop: Loop, numbered: Numbered, ports: Ports, wanted: tuple[int, ...], watchdog: ClientWatchdog, limits: Limits
) -> None:
    """Run a session with one connection for each requested port. Raises OSError."""
    room = Room(limits.waiting)
    inboxes = [Inbox(room) for _ in wanted]
    for index, port in enumerate(wanted):
        for channel in (2 * index, 2 * index + 1):
            await numbered.send(channel, port.to_bytes(2, "little"))
    carriers = [
        loop.spawn(ports.carry(port, inboxes[index], Channel(numbered, 2 * index)), "connection")
        for index, port in enumerate(wanted)
    ]
    reader = loop.spawn(_read(numbered, inboxes, watchdog.touch), "client")
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
