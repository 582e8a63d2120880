"""The ports: connections in, each with its own coroutine, and a bound on their number."""

from __future__ import annotations

import errno
import itertools
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterable

from actors._base.process.listener_store import ListenerStore
from actors._net.loop import Loop
from actors._net.stream import Stream
from actors.server.base.send_budget import Untaken
from actors.server.transport.connection import Connection, Serve
from proto.common import logs

log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTED_AT_ONCE = 64
RETRY_S = 1.0
FULL_S = 0.02
"""For those who are told to go, to be gone."""
BUSY_S = 0.2
"""Where nobody could be told to go, between two looks."""
STALLED_S = 30.0
"""A client that takes nothing of its answer for so long may have to go."""
SAY_S = 60.0
"""Between two log lines that say the same."""
MOST = 16_384
"""Connections at a time over all ports, 16 KB each while they are idle, with TLS 20."""
SPARE_FILES = 256
"""Descriptors that connections leave for everything else."""
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


class Seldom:
    """Says once in a while what would be said with every connection."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._next = float("-inf")

    def say(self, message: str, *args: object) -> None:
        """Log it, unless something was logged here less than SAY_S ago."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SAY_S
            log.log(self._level, message, *args)


class Connections:
    """Everybody who is connected. A new one that is too many takes the place of the one that has been idle longest."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = max(16, min(MOST, soft - SPARE_FILES))
        self.total = 0
        self.streams: set[Stream] = set()
        self.idle: dict[Stream, None] = {}
        """Who waits for its client, for a handshake or a whole request, in the order in which they began to."""
        self.untaken = Untaken()
        self._full = Seldom(logging.WARNING)

    @property
    def count(self) -> int:
        """Connections there are."""
        return len(self.streams)

    @property
    def full(self) -> bool:
        """No more may come in."""
        return self.count >= self.most

    def make_room(self, why: str) -> float:
        """End those who have been idle longest; where there are none, those who take nothing of their answer.

        The seconds after which to look again: where all are busy new ones wait, in the kernel's queue.
        """
        wanted = max(1, self.most // 256)
        streams = list(itertools.islice(self.idle, wanted)) or self._stalled()[:wanted]
        for stream in streams:
            self.idle.pop(stream, None)
            stream.abort()
        what = (
            "a new one takes the place of the one that was idle longest" if streams else "all are busy, new ones wait"
        )
        self._full.say("%s (there are %d): %s", why, self.count, what)
        return FULL_S if streams else BUSY_S

    def _stalled(self) -> list[Stream]:
        since = time.monotonic() - STALLED_S
        found = ((at, stream) for stream in self.streams if (at := stream.stalled_since) is not None and at <= since)
        return [stream for _, stream in sorted(found, key=lambda pair: pair[0])]


class Listeners:
    """What is listened on, by address and port: taken over from the incarnation before, and kept for the next one."""

    def __init__(self, kept: ListenerStore | None = None, wanted: Iterable[tuple[str, int]] = ()) -> None:
        """Only what is wanted is taken over; the rest is closed."""
        self._store = kept
        names = {_name(*one) for one in wanted}
        self._sockets: dict[str, socket.socket] = {}
        for name, listener in (kept.take() if kept is not None else {}).items():
            if name in names:
                listener.setblocking(False)
                self._sockets[name] = listener
            else:
                listener.close()
        self._keep()

    def find(self, address: str, port: int) -> socket.socket | None:
        """Of the incarnation before."""
        return self._sockets.get(_name(address, port))

    def add(self, address: str, port: int, listener: socket.socket) -> None:
        """Another one."""
        self._sockets[_name(address, port)] = listener
        self._keep()

    def _keep(self) -> None:
        if self._store is not None:
            try:
                self._store.put(self._sockets)
            except OSError as error:
                log.info("cannot keep what is listened on for a restart: %s", error.strerror)


def _name(address: str, port: int) -> str:
    return f"{address} {port}"


class Port:
    """One listening port."""

    def __init__(
        self,
        loop: Loop,
        connections: Connections,
        serve: Serve,
        context: Callable[[], ssl.SSLContext] | None,
        listeners: Listeners | None = None,
    ) -> None:
        """`context`: TLS with it; raises OSError when it cannot be had."""
        self._loop, self._connections, self._serve, self._context = loop, connections, serve, context
        self._listeners = listeners or Listeners()
        self.listener: socket.socket | None = None
        self._unusable = Seldom(logging.ERROR)

    @property
    def number(self) -> int:
        """Of the port; 0 while it does not listen."""
        listener = self.listener
        return int(listener.getsockname()[1]) if listener is not None and listener.fileno() >= 0 else 0

    async def listen(self, address: str, port: int) -> None:
        """Serve until cancelled. A port that is taken is tried again."""
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
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        level = logging.ERROR
        while True:
            try:
                listener = socket.create_server(
                    (address, port), family=family, backlog=BACKLOG, dualstack_ipv6=address == "::"
                )
            except OSError as error:
                log.log(level, "cannot listen on %s port %d: %s; trying again", address, port, error.strerror)
                level = logging.DEBUG
                await self._loop.sleep(RETRY_S)
            else:
                listener.setblocking(False)
                return listener

    def _accept_some(self, listener: socket.socket) -> float:
        """Take those who wait; the seconds to pause before the next, where there is no room for them."""
        connections = self._connections
        if connections.full:
            return connections.make_room("as many connections as there may be")
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connected, _ = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _NO_MORE:  # the port stays readable: without a pause this would be all there is
                    return connections.make_room(f"cannot accept a connection: {error.strerror}")
                continue  # it is gone again
            self._begin(connected)
            if connections.full:
                break  # nobody has to go before somebody else comes
        return 0.0

    def _begin(self, connected: socket.socket) -> None:
        try:
            context = self._context() if self._context is not None else None
        except OSError as error:
            self._unusable.say("cannot serve a connection: %s", error)
            connected.close()
            return
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
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
            await Connection(stream, self._serve, connections.idle, connections.untaken).run()
        finally:
            connections.streams.discard(stream)
            connections.idle.pop(stream, None)
