"""port-forward: forwards connections of local ports to a pod, each by two streams of one SPDY connection."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable

from actors._net.streaming.spdy import Data, Reset
from supervisor.cli.streams.transport.connection import BLOCK, MAX_UNSENT, Connection

PROTOCOL = "portforward.k8s.io"
MAX_UNREAD = 1024 * 1024
"""Bytes that may wait for a local client before the runtime's are read no further."""


class _Pair:
    """A local connection and its data and error streams."""

    def __init__(self, connected: socket.socket, port: int, data: int, error: int) -> None:
        self.socket, self.port, self.data, self.error = connected, port, data, error
        self.out = bytearray()
        self.ended_here = self.ended_there = False
        self.watched = 0


class Forwarder:
    """Accepts local connections and forwards their bytes in both directions."""

    def __init__(self, connection: Connection, complain: Callable[[str], None]) -> None:
        self._connection, self._complain = connection, complain
        self._selector = selectors.DefaultSelector()
        self._polled = 0
        """The selector's events of the runtime's connection."""
        self._full = False
        """True while so much waits for the runtime that local input is read no further."""
        self._pairs: dict[int, _Pair] = {}
        self._requests = 0

    def listen(self, address: str, local: int, remote: int) -> int:
        """Listen on a local port and return its number. Raises OSError."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, local), family=family, backlog=512)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, remote)
        return int(listener.getsockname()[1])

    def run(self) -> None:
        """Forward until the runtime closes the connection."""
        while True:
            self._poll()
            for key, mask in self._selector.select():
                if key.fileobj is self._connection:
                    self._connection.flush()
                    if mask & selectors.EVENT_READ and not self._take():
                        return
                elif isinstance(key.data, int):
                    self._accept(key.fileobj, key.data)  # type: ignore[arg-type]
                elif isinstance(key.data, _Pair):
                    self._local(key.data, mask)

    def _poll(self) -> None:
        """Poll each side only while the other takes its bytes: SPDY has no flow control here, only TCP has.

        One slow client so delays all connections of this command, as it does with kubectl.
        """
        full = self._connection.waiting >= MAX_UNSENT
        if full != self._full:
            self._full = full
            for pair in set(self._pairs.values()):
                self._settle(pair)
        reading = 0 if any(len(pair.out) > MAX_UNREAD for pair in self._pairs.values()) else selectors.EVENT_READ
        wanted = reading | (selectors.EVENT_WRITE if self._connection.waiting else 0)
        self._polled = self._change(self._connection, self._polled, wanted)

    def _change(self, polled: Connection | socket.socket, before: int, wanted: int, data: object = None) -> int:
        """Poll a connection for `wanted`; 0 stops that, because a socket at its end would be readable for ever."""
        if wanted and before:
            if wanted != before:
                self._selector.modify(polled, wanted, data)
        elif wanted:
            self._selector.register(polled, wanted, data)
        elif before:
            self._selector.unregister(polled)
        return wanted

    def _accept(self, listener: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError):
            connected, _ = listener.accept()
            connected.setblocking(False)
            self._requests += 1
            headers = {"port": str(port), "requestid": str(self._requests)}
            error = self._connection.open({"streamtype": "error", **headers})
            self._connection.write(error, b"", end=True)
            data = self._connection.open({"streamtype": "data", **headers})
            pair = _Pair(connected, port, data, error)
            self._pairs[data] = self._pairs[error] = pair
            self._watch(pair, selectors.EVENT_READ)

    def _local(self, pair: _Pair, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._drain(pair)
            if mask & selectors.EVENT_READ and not pair.ended_here and self._connection.waiting < MAX_UNSENT:
                content = pair.socket.recv(BLOCK)
                pair.ended_here = not content
                self._connection.write(pair.data, content, end=not content)
        except BlockingIOError:
            pass
        except OSError:
            self._connection.reset(pair.data)
            pair.ended_here = pair.ended_there = True
            pair.out.clear()
        self._settle(pair)

    def _drain(self, pair: _Pair) -> None:
        while pair.out:
            del pair.out[: pair.socket.send(pair.out)]
        if pair.ended_there:
            pair.socket.shutdown(socket.SHUT_WR)

    def _take(self) -> bool:
        events = self._connection.read()
        for event in events or ():
            pair = self._pairs.get(event.stream)
            if pair is None:
                continue
            if isinstance(event, Data) and event.stream == pair.error:
                if event.content:
                    self._complain(f"port {pair.port}: {event.content.decode(errors='replace').strip()}")
                continue
            if isinstance(event, Data):
                pair.out += event.content
            if isinstance(event, Reset) or event.end:
                pair.ended_there = True
                pair.ended_here = pair.ended_here or isinstance(event, Reset)
            with contextlib.suppress(OSError):
                self._drain(pair)
            self._settle(pair)
        return events is not None

    def _settle(self, pair: _Pair) -> None:
        """Poll the local connection for what is needed now, or close it."""
        if pair.data not in self._pairs:
            return
        if pair.ended_there and not pair.out and pair.ended_here:
            self._watch(pair, 0)
            pair.socket.close()
            del self._pairs[pair.data], self._pairs[pair.error]
            return
        reading = 0 if pair.ended_here or self._full else selectors.EVENT_READ
        self._watch(pair, reading | (selectors.EVENT_WRITE if pair.out else 0))

    def _watch(self, pair: _Pair, wanted: int) -> None:
        pair.watched = self._change(pair.socket, pair.watched, wanted, pair)
