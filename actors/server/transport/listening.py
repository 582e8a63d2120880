"""Listens on the ports, starts a coroutine for each connection, and bounds the number of connections."""

from __future__ import annotations

import errno
import itertools
import logging
import resource
import socket
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from actors._base.process.listener_store import ListenerStore
from actors._net.loop import Loop
from actors._net.stream import Stream
from actors.server.base.head_budget import HeadBudget
from actors.server.base.send_budget import SendBudget
from actors.server.transport.connection import Connection, Serve
from proto.common import logs
from proto.common.machine.listening import end_lost_connections, family_of, listen

if TYPE_CHECKING:
    from actors._net.openssl import ServerContext

log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTED_AT_ONCE = 64
RETRY_S = 1.0
FULL_S = 0.02
"""Pause after idle connections were ended, until they are gone."""
BUSY_S = 0.2
"""Pause between two checks while all connections are busy."""
STALLED_S = 30.0
"""A client that reads nothing of its answer for this long may be disconnected to make room."""
SAY_S = 60.0
"""Interval of equal log lines."""
MAX_CONNECTIONS = 16_384
"""Connections of all ports together. An idle one takes 16 KB, with TLS 45 (OpenSSL 4.0)."""
SPARE_FILES = 256
"""File descriptors reserved for everything else."""
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


class Connections:
    """All open connections. At the limit a new one replaces the longest idle one."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = max(16, min(MAX_CONNECTIONS, soft - SPARE_FILES))
        self.total = 0
        self.streams: set[Stream] = set()
        self.idle: dict[Stream, None] = {}
        """The connections that wait for a handshake or a complete request, longest first."""
        self.head_budget = HeadBudget()
        self.send_budget = SendBudget()
        self._full = logs.Limited(log, most=1, period_s=SAY_S)

    @property
    def count(self) -> int:
        """The number of open connections."""
        return len(self.streams)

    @property
    def full(self) -> bool:
        """True when the limit is reached."""
        return self.count >= self.limit

    def make_room(self, why: str) -> float:
        """End the connections that were idle longest; without idle ones, those whose clients read nothing.

        Returns the seconds to pause accepting. While all are busy, new ones wait in the kernel's queue.
        """
        wanted = max(1, self.limit // 256)
        streams = list(itertools.islice(self.idle, wanted)) or self._stalled()[:wanted]
        for stream in streams:
            self.idle.pop(stream, None)
            stream.abort()
        what = "a new one replaces the longest idle one" if streams else "all are busy, new ones wait"
        self._full.log(logging.WARNING, "%s (there are %d): %s", why, self.count, what)
        return FULL_S if streams else BUSY_S

    def _stalled(self) -> list[Stream]:
        since = time.monotonic() - STALLED_S
        found = ((at, stream) for stream in self.streams if (at := stream.stalled_since) is not None and at <= since)
        return [stream for _, stream in sorted(found, key=lambda pair: pair[0])]


class Listeners:
    """Listening sockets by address and port: taken over from the previous incarnation, stored for the next one."""

    def __init__(self, kept: ListenerStore | None = None, wanted: Iterable[tuple[str, int]] = ()) -> None:
        """Stored sockets whose address and port are not in `wanted` are closed.

        So is a socket of another family than a new one would have. Another version of the agent opened it, or the
        kernel had no IPv6 then.
        """
        self._store = kept
        families = {_name(*one): family_of(one[0]) for one in wanted}
        self._sockets: dict[str, socket.socket] = {}
        for name, listener in (kept.take() if kept is not None else {}).items():
            if families.get(name) == listener.family:
                listener.setblocking(False)
                end_lost_connections(listener)
                self._sockets[name] = listener
            else:
                listener.close()
        self._keep()

    def find(self, address: str, port: int) -> socket.socket | None:
        """The listening socket of the previous incarnation; None without one."""
        return self._sockets.get(_name(address, port))

    def add(self, address: str, port: int, listener: socket.socket) -> None:
        """Store a new listening socket."""
        self._sockets[_name(address, port)] = listener
        self._keep()

    def _keep(self) -> None:
        if self._store is not None:
            try:
                self._store.put(self._sockets)
            except OSError as error:
                log.info("cannot store the listening sockets for a restart: %s", error.strerror)


def _name(address: str, port: int) -> str:
    return f"{address} {port}"


class Port:
    """One listening port."""

    def __init__(
        self,
        loop: Loop,
        connections: Connections,
        serve: Serve,
        context: Callable[[], ServerContext] | None,
        listeners: Listeners | None = None,
    ) -> None:
        """With `context` the port speaks TLS; `context` raises OSError while there is no usable certificate."""
        self._loop, self._connections, self._serve, self._context = loop, connections, serve, context
        self._listeners = listeners or Listeners()
        self.listener: socket.socket | None = None
        self._unusable = logs.Limited(log, most=1, period_s=SAY_S)

    @property
    def number(self) -> int:
        """The port's number; 0 while it does not listen."""
        listener = self.listener
        return int(listener.getsockname()[1]) if listener is not None and listener.fileno() >= 0 else 0

    async def listen(self, address: str, port: int) -> None:
        """Serve until cancelled. A port in use is tried again every RETRY_S."""
        self.listener = self._listeners.find(address, port)
        if self.listener is None:
            self.listener = await self._open(address, port)
            self._listeners.add(address, port, self.listener)
        log.log(logs.NOTICE, "serving on %s port %d", address, self.listener.getsockname()[1])
        try:
            while True:
                await self._loop.readable(self.listener.fileno())
                if pause_s := self._accept_some(self.listener):
                    await self._loop.sleep(pause_s)
        finally:
            self.listener.close()

    async def _open(self, address: str, port: int) -> socket.socket:
        level = logging.ERROR
        while True:
            try:
                listener = listen(address, port, BACKLOG)
            except OSError as error:
                log.log(level, "cannot listen on %s port %d: %s; trying again", address, port, error.strerror)
                level = logging.DEBUG
                await self._loop.sleep(RETRY_S)
            else:
                listener.setblocking(False)
                return listener

    def _accept_some(self, listener: socket.socket) -> float:
        """Accept waiting connections. Returns the seconds to pause when there is no room."""
        connections = self._connections
        if connections.full:
            return connections.make_room("as many connections as there may be")
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connected, _ = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _NO_MORE:  # the port stays readable: without a pause the loop would spin
                    return connections.make_room(f"cannot accept a connection: {error.strerror}")
                continue  # it is gone again
            self._begin(connected)
            if connections.full:
                break  # an idle connection is ended only when another client waits
        return 0.0

    def _begin(self, connected: socket.socket) -> None:
        try:
            context = self._context() if self._context is not None else None
        except OSError as error:
            self._unusable.log(logging.ERROR, "cannot serve a connection: %s", error)
            connected.close()
            return
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                connected = context.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            log.debug("a connection is gone again: %s", error)
            connected.close()
            return
        self._loop.spawn(self._one(Stream(self._loop, connected)), "connection")

    async def _one(self, stream: Stream) -> None:
        connections = self._connections
        connections.total += 1
        connections.streams.add(stream)
        try:
            budgets = connections.head_budget, connections.send_budget
            await Connection(stream, self._serve, connections.idle, *budgets).run()
        finally:
            connections.streams.discard(stream)
            connections.idle.pop(stream, None)
