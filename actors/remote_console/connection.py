"""One TCP connection: its bytes go to and from a CURVE socket of its own, so that it alone can be limited and ended."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

import zmq

from actors.remote_console import limits
from proto.agent.remote_console import AuthorizedKey, ServerKey
from proto.common.machine.listening import plain

CHUNK = 16 * 1024


class Over(Exception):
    """The connection ends; the text says why."""


class Connection:
    """Used in the gateway's thread. ZeroMQ reads the client's bytes from a Unix socket that this pumps them into."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], number: int, tcp: socket.socket, run_dir: str, key: ServerKey
    ) -> None:
        self.number, self.tcp = number, tcp
        host, port = tcp.getpeername()[:2]
        host = plain(host)
        self.address, self.source = f"{host}:{port}", limits.source_of(host)
        self.key: AuthorizedKey | None = None
        self.began = self.last = time.monotonic()
        self.rates = limits.Rates()
        self.asks = 0
        self.streams: dict[str, Any] = {}
        self.dropped = 0
        self._unread = 0
        self._queued = 0
        self._in, self._out = b"", b""
        self._path = f"{run_dir}/remote_console-{number}.ipc"
        self.socket = context.socket(zmq.DEALER)
        self.inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._open(key)

    def _open(self, key: ServerKey) -> None:
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.SNDHWM, 256)
        self.socket.set(zmq.RCVHWM, 16)
        self.socket.set(zmq.MAXMSGSIZE, limits.MOST_FRAME_BYTES)
        self.socket.set(zmq.HANDSHAKE_IVL, int(limits.HANDSHAKE_S * 1000))
        self.socket.set(zmq.CURVE_SERVER, 1)
        self.socket.set(zmq.CURVE_SECRETKEY, key.secret.encode())
        self.socket.set(zmq.ZAP_DOMAIN, str(self.number).encode())
        self.socket.bind(f"ipc://{self._path}")
        self.inner.connect(self._path)
        self.inner.setblocking(False)
        self.tcp.setblocking(False)
        self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def register(self, poller: zmq.Poller, now: float) -> float | None:
        """Register what it waits for. Returns the seconds until it may read again, when it sent too fast."""
        wait_s = self.rates.incoming.wait_s(now)
        reads = not self._in and wait_s <= 0
        poller.register(self.tcp, (zmq.POLLIN if reads else 0) | (zmq.POLLOUT if self._out else 0) | zmq.POLLERR)
        poller.register(self.inner, (zmq.POLLIN if not self._out else 0) | (zmq.POLLOUT if self._in else 0))
        poller.register(self.socket, zmq.POLLIN)
        return wait_s if wait_s > 0 else None

    def pump(self, ready: dict[Any, int]) -> None:
        """Move bytes. Raises Over."""
        tcp, inner = ready.get(self.tcp.fileno(), 0), ready.get(self.inner.fileno(), 0)
        try:
            self._pump_in(tcp)
            self._pump_out(inner)
        except OSError as error:
            raise Over(error.strerror or "the connection broke") from error
        if tcp & zmq.POLLERR:
            raise Over("the connection broke")

    def _pump_in(self, ready: int) -> None:
        if ready & zmq.POLLIN and not self._in:
            self._in = self._take(self.tcp, "the client has disconnected")
            self.rates.incoming.took(len(self._in))
            self._unread += len(self._in)
        if self._unread > limits.MOST_UNREAD_BYTES:
            raise Over("its message is too large")
        if self._in:
            with contextlib.suppress(BlockingIOError):
                self._in = self._in[self.inner.send(self._in) :]

    def _pump_out(self, ready: int) -> None:
        if ready & zmq.POLLIN and not self._out:
            self._out = self._take(self.inner, "its key or its bytes were refused")
        if self._out:
            with contextlib.suppress(BlockingIOError):
                sent = self.tcp.send(self._out)
                self._out = self._out[sent:]
                self._queued = max(0, self._queued - sent)

    @staticmethod
    def _take(source: socket.socket, at_end: str) -> bytes:
        try:
            data = source.recv(CHUNK)
        except BlockingIOError:
            return b""
        if not data:
            raise Over(at_end)
        return data

    def messages(self) -> list[list[bytes]]:
        """The messages that have arrived, at most 16."""
        found: list[list[bytes]] = []
        with contextlib.suppress(zmq.Again):
            while len(found) < 16:
                found.append(self.socket.recv_multipart(zmq.NOBLOCK))
                self._unread = 0
                self.last = time.monotonic()
        return found

    def answer(self, frames: list[bytes]) -> None:
        """Send an answer. Raises Over for a client that does not read."""
        size = sum(map(len, frames))
        if self._queued + size > limits.MOST_QUEUED_BYTES:
            raise Over("it does not read its answers")
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again as error:
            raise Over("it does not read its answers") from error
        self._queued += size

    def stream(self, frames: list[bytes]) -> None:
        """Send a message of a stream, or count it as dropped. Raises Over when it lost too many."""
        size = sum(map(len, frames))
        try:
            if self._queued + size > limits.MOST_QUEUED_BYTES:
                raise zmq.Again
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again as error:
            self.dropped += 1
            if self.dropped > limits.MOST_DROPPED:
                raise Over("it is too slow for its streams") from error
            return
        self._queued += size
        self.last = time.monotonic()

    def check_time(self, now: float) -> None:
        """Raises Over when it did not show its key in time, or was idle for long."""
        if self.key is None and now - self.began > limits.HANDSHAKE_S:
            raise Over("it did not show a key in time")
        if now - self.last > limits.IDLE_S:
            raise Over(f"it was idle for {limits.IDLE_S:g} s")

    def close(self) -> None:
        """Close everything that it has."""
        for stream in self.streams.values():
            stream.close(linger=0)
        self.streams.clear()
        self.socket.close(linger=0)
        self.inner.close()
        self.tcp.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
