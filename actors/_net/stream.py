"""A connected socket of the loop's, plain or with TLS: read, write with back-pressure, and two ways to end it."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import ssl
import struct
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

from actors._net.loop import Loop
from actors._net.tls import ClientCertificate, TlsSocket

BLOCK = 256 * 1024
HEAD_BLOCK = 16 * 1024
"""For requests and the heads of answers: a record of TLS, and small enough that malloc has it at hand."""
LOOK_S = 0.05
LINGER_S = 1.0
"""How long what a client still sends is thrown away, so that it gets to read the answer before its connection ends."""

_TCP_CLOSE, _TCP_CLOSE_WAIT = 7, 8  # linux/tcp_states.h
NOT_TLS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class Stream:
    """One reader and one writer at a time. Everything in the loop's thread."""

    def __init__(self, loop: Loop, connected: socket.socket) -> None:
        """`connected` is non-blocking; with TLS it is a TlsSocket whose handshake is yet to be done."""
        self.loop = loop
        self.tls = connected if isinstance(connected, TlsSocket) else None
        self._socket = connected
        self._closed = False
        self.stalled_since: float | None = None
        """Since when, by the monotonic clock, the other end takes nothing of what is to be written; None: it does."""

    def certificate(self) -> ClientCertificate | None:
        """The client's certificate; None without one. Raises ssl.SSLCertVerificationError for one that could not be
        verified, or has expired since."""
        found = self.tls.client_certificate() if self.tls is not None else None
        if found is not None and found.expires < time.time():
            raise ssl.SSLCertVerificationError("the client's certificate has expired since it connected")
        return found

    @property
    def remote(self) -> str:
        """The other end's address, for logs."""
        with contextlib.suppress(OSError):
            name: Any = self._socket.getpeername()
            return str(name[0]) if isinstance(name, tuple) else "unix"
        return "gone"

    @property
    def peer_left(self) -> bool:
        """True when the other end has hung up, though what it sent before is not read yet."""
        with contextlib.suppress(OSError):
            state = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            return state in (_TCP_CLOSE, _TCP_CLOSE_WAIT)
        return True

    async def handshake(self) -> None:
        """Of TLS, as the server. Raises OSError."""
        if self.tls is None:
            return
        while True:
            await self.loop.before_long_step()
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.loop.readable(self._fileno())
            except ssl.SSLWantWriteError:
                await self.loop.writable(self._fileno())
            except ssl.SSLError as error:
                if error.reason == "HTTP_REQUEST":
                    socket.socket.send(self._socket, NOT_TLS)
                raise
            else:
                # TLS 1.3 has nothing more to say here that the acknowledgement could go with, and a client with Nagle's
                # algorithm would wait for it, 40 ms, before it asks.
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                return

    async def read(self, size: int = BLOCK) -> bytes:
        """What has come, at least a byte; empty at its end. Raises OSError."""
        while not self._closed:
            try:
                return self._socket.recv(size)
            except (BlockingIOError, ssl.SSLWantReadError):
                await self.loop.readable(self._fileno())
            except ssl.SSLWantWriteError:  # TLS renews its keys
                await self.loop.writable(self._fileno())
            except ssl.SSLError as error:
                if error.reason in ("UNEXPECTED_EOF_WHILE_READING", "APPLICATION_DATA_AFTER_CLOSE_NOTIFY"):
                    return b""  # most clients just hang up
                raise
        return b""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it, as fast as the other end takes it. Raises OSError."""
        left = memoryview(data)
        while left:
            if self._closed:
                raise ConnectionAbortedError("the connection is closed")
            try:
                left = left[self._socket.send(left) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                await self._room()
            except ssl.SSLWantReadError:
                await self.loop.readable(self._fileno())

    async def _room(self) -> None:
        self.stalled_since = time.monotonic()
        try:
            await self.loop.writable(self._fileno())
        finally:
            self.stalled_since = None

    def end_writing(self) -> None:
        """Say that nothing more comes, and go on reading. Of a plain stream."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """End both directions at once: who reads or writes here gets to know."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # the SSLSocket's own would forget its session

    async def end(self) -> None:
        """Say that nothing more comes, give the other end a moment to read the last of it, and close."""
        if self._closed:
            return
        timer = self.loop.call_later(LINGER_S, self.abort)
        try:
            with contextlib.suppress(OSError, ValueError):
                self._say_end()
                await self._discard()
        finally:
            timer.cancel()
            self.close()

    async def _discard(self) -> None:
        """What still comes, up to its end, as it is on the wire: TLS reads nothing more after an end that was crossed.

        What is left unread would have the kernel reset the connection, and the other end lose what it has not read.
        """
        while not self._closed:
            try:
                if not socket.socket.recv(self._socket, HEAD_BLOCK):
                    return
            except BlockingIOError:
                await self.loop.readable(self._fileno())

    def _say_end(self) -> None:
        if self.tls is not None:
            with contextlib.suppress(ssl.SSLError):  # the other end has not said so yet; it has been told
                self.tls.unwrap()
        socket.socket.shutdown(self._socket, socket.SHUT_WR)

    async def close_gently(self) -> None:
        """Close, having given the other end a moment to take what is on its way; if it does not, reset the connection.

        An end that stands behind bytes which are not taken is never seen. Of a plain stream.
        """
        self.end_writing()
        deadline = time.monotonic() + LINGER_S
        while self._unacknowledged() and time.monotonic() < deadline:
            await self.loop.sleep(LOOK_S)
        if self._unacknowledged():
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def _unacknowledged(self) -> int:
        """Bytes that the other end's kernel has not acknowledged."""
        try:
            return int.from_bytes(fcntl.ioctl(self._socket, termios.TIOCOUTQ, b"\0" * 4), sys.byteorder)
        except (OSError, ValueError):
            return 0

    def close(self) -> None:
        """Close at once; harmless when it is closed."""
        if not self._closed:
            self._closed = True
            self._socket.close()

    def _fileno(self) -> int:
        return self._socket.fileno()


def tcp_socket(host: str) -> socket.socket:
    """For a connection to that address, of either family, that waits for nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


async def connect(
    loop: Loop, host: str, port: int, timeout_s: float, make: Callable[[str], socket.socket] = tcp_socket
) -> Stream:
    """A plain connection to another server; `make` may make its socket elsewhere. Raises OSError."""
    connecting = make(host)
    stream = Stream(loop, connecting)
    timer = loop.call_later(timeout_s, stream.abort)
    try:
        with contextlib.suppress(BlockingIOError):
            connecting.connect((host, port))
        await loop.writable(connecting.fileno())
        error = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, f"cannot connect to {host} port {port}")
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        stream.close()
        raise
    finally:
        timer.cancel()
    return stream
