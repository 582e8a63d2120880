"""The ports: connections in, each with its own coroutine, and a bound on their number."""

from __future__ import annotations

import errno
import itertools
import logging
import resource
import socket
import ssl
from collections.abc import Callable

from actors._net.loop import Loop
from actors._net.stream import Stream
from actors.server.connection import Connection, Serve
from proto import logs

log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTED_AT_ONCE = 64
RETRY_S = 1.0
FULL_S = 0.02
"""For those who are told to go, to be gone."""
MOST = 16_384
"""Connections at a time over all ports, 16 KB each while they are idle."""
SPARE_FILES = 256
"""Descriptors that connections leave for everything else."""


class Connections:
    """Everybody who is connected. A new one that is too many takes the place of the one that has been idle longest."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = max(16, min(MOST, soft - SPARE_FILES))
        self.count = self.total = 0
        self.idle: dict[Stream, None] = {}
        """In the order in which they became so."""

    @property
    def full(self) -> bool:
        """No more may come in."""
        return self.count >= self.most

    def make_room(self) -> None:
        """End the ones that have been idle longest; where all are busy, new ones wait."""
        for stream in list(itertools.islice(self.idle, ACCEPTED_AT_ONCE)):
            del self.idle[stream]
            stream.abort()


class Port:
    """One listening port."""

    def __init__(
        self,
        loop: Loop,
        connections: Connections,
        serve: Serve,
        context: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        """`context`: TLS with it; raises OSError when it cannot be had."""
        self._loop, self._connections, self._serve, self._context = loop, connections, serve, context
        self.listener: socket.socket | None = None

    @property
    def number(self) -> int:
        """Of the port; 0 while it does not listen."""
        listener = self.listener
        return int(listener.getsockname()[1]) if listener is not None and listener.fileno() >= 0 else 0

    async def listen(self, address: str, port: int) -> None:
        """Serve until cancelled. A port that is taken is tried again."""
        self.listener = await self._open(address, port)
        log.log(logs.NOTICE, "serving on %s port %d", address, self.listener.getsockname()[1])
        try:
            while True:
                await self._loop.readable(self.listener.fileno())
                if self._connections.full:
                    self._connections.make_room()
                    await self._loop.sleep(FULL_S)
                for _ in range(ACCEPTED_AT_ONCE):
                    if self._connections.full or not self._accept(self.listener):
                        break
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

    def _accept(self, listener: socket.socket) -> bool:
        try:
            connected, _ = listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                log.error("cannot accept a connection: %s", error.strerror)
                return False
            return True  # it is gone again
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._context is not None:
                connected = self._context().wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            log.error("cannot serve a connection: %s", error)
            connected.close()
            return True
        self._loop.spawn(self._one(Stream(self._loop, connected)), "connection")
        return True

    async def _one(self, stream: Stream) -> None:
        connections = self._connections
        connections.count += 1
        connections.total += 1
        try:
            await Connection(stream, self._serve, connections.idle).run()
        finally:
            connections.count -= 1
            connections.idle.pop(stream, None)
