"""A connected socket on the loop, plain or with TLS: reads, writes with back-pressure, and closes."""

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

from actors._base.messaging.tasks import Cancelled
from actors._net.loop import Loop
from actors._net.tls import ClientCertificate, TlsSocket, Verify
from proto.common.machine.listening import plain

BLOCK = 256 * 1024
HEAD_BLOCK = 16 * 1024
"""Read size for requests and heads of answers: a TLS record, and small enough that malloc reuses it."""
LOOK_S = 0.05
"""Poll interval for the acknowledgement of sent bytes before a close."""
LINGER_S = 1.0
"""Time for which a closing connection discards received bytes, so that the client can read the answer first."""
DRAIN_LOOK_S = 0.5
"""Interval of the check whether the other end takes more of the bytes that were sent before a close."""
MOST_DRAIN_S = 900.0
"""Time for the other end to take them, also when it takes some now and then."""

_TCP_CLOSE, _TCP_CLOSE_WAIT = 7, 8  # linux/tcp_states.h
NOT_TLS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class Stream:
    """One reader and one writer at a time. Everything in the loop's thread."""

    def __init__(self, loop: Loop, connected: socket.socket) -> None:
        """`connected` is non-blocking; with TLS it is a TlsSocket whose handshake is yet to be done."""
        self.loop = loop
        self.tls = connected if isinstance(connected, TlsSocket) else None
        self._socket = connected
        self._closed = self._aborted = False
        self.stalled_since: float | None = None
        """Monotonic time since which a write waits for the other end; None while none waits."""
        self._rest = b""
        """The unsent bytes of a write that was cancelled after its first byte."""

    def certificate(self, verify: Verify) -> ClientCertificate | None:
        """The client's certificate; None without one. Raises ssl.SSLCertVerificationError when it could not
        be verified, has expired since, or has a CA that `verify` does not know."""
        found = self.tls.client_certificate(verify) if self.tls is not None else None
        if found is not None and found.expires < time.time():
            raise ssl.SSLCertVerificationError("the client's certificate has expired since it connected")
        return found

    @property
    def remote(self) -> str:
        """The other end's address, for logs; `gone` after it disconnected."""
        with contextlib.suppress(OSError):
            name: Any = self._socket.getpeername()
            return plain(str(name[0])) if isinstance(name, tuple) else "unix"
        return "gone"

    @property
    def peer_left(self) -> bool:
        """True when the other end has closed, also while bytes that it sent before are unread; or after `abort`."""
        if self._aborted:
            return True
        with contextlib.suppress(OSError):
            state = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            return state in (_TCP_CLOSE, _TCP_CLOSE_WAIT)
        return True

    async def handshake(self) -> None:
        """Make the server's TLS handshake. Raises OSError."""
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
                # After a TLS 1.3 handshake the server sends nothing that could carry the acknowledgement. A client with
                # Nagle's algorithm would wait 40 ms for it before its request.
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                return

    async def read(self, size: int = BLOCK) -> bytes:
        """The next bytes, at least one; empty at the end and after `abort`. Raises OSError."""
        while not self._closed and not self._aborted:
            try:
                return self._socket.recv(size)
            except (BlockingIOError, ssl.SSLWantReadError):
                await self.loop.readable(self._fileno())
            except ssl.SSLWantWriteError:  # TLS updates its keys
                await self.loop.writable(self._fileno())
            except ssl.SSLError as error:
                if error.reason in ("UNEXPECTED_EOF_WHILE_READING", "APPLICATION_DATA_AFTER_CLOSE_NOTIFY"):
                    return b""  # most clients close without close_notify
                raise
        return b""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data, waiting for the other end. Raises OSError.

        The rest of a cancelled write goes before the next one, so that frames stay whole.
        """
        if self._rest:
            rest, self._rest = self._rest, b""
            await self._send(memoryview(rest), begun=True)
        await self._send(memoryview(data), begun=self.tls is not None)  # OpenSSL wants the same bytes again

    async def _send(self, left: memoryview, *, begun: bool) -> None:
        try:
            while left:
                if self._closed:
                    raise ConnectionAbortedError("the connection is closed")
                try:
                    left = left[self._socket.send(left) :]
                    begun = True
                except (BlockingIOError, ssl.SSLWantWriteError):
                    await self._room()
                except ssl.SSLWantReadError:
                    await self.loop.readable(self._fileno())
        except Cancelled:
            if begun:
                self._rest = bytes(left)
            raise

    async def _room(self) -> None:
        self.stalled_since = time.monotonic()
        try:
            await self.loop.writable(self._fileno())
        finally:
            self.stalled_since = None

    def end_writing(self) -> None:
        """Close the sending direction of a plain stream."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """Shut both directions down at once. Pending reads and writes end."""
        self._aborted = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # the SSLSocket's own would forget its session

    async def end(self, stalled_s: float = 0.0) -> None:
        """Close the sending direction, discard input for at most LINGER_S, and close.

        With `stalled_s` the LINGER_S begin once the other end has received every byte, or none for `stalled_s`. A byte
        that it sends after the close would make the kernel drop the rest.
        """
        if self._closed:
            return
        lingering = self.loop.spawn(self.abort_after(LINGER_S, stalled_s), "linger")
        try:
            with contextlib.suppress(OSError, ValueError):
                await self._say_end()
                await self._discard()
        finally:
            lingering.cancel()
            self.close()

    async def abort_after(self, wait_s: float, stalled_s: float) -> None:
        """Abort `wait_s` after the other end has received every byte, or none for `stalled_s`.

        `stalled_since` is the time of the last progress meanwhile.
        """
        left, since = self._unacknowledged(), time.monotonic()
        now, deadline = since, since + MOST_DRAIN_S
        while left and now < min(since + stalled_s, deadline):
            self.stalled_since = since
            await self.loop.sleep(min(DRAIN_LOOK_S, stalled_s))
            before, left, now = left, self._unacknowledged(), time.monotonic()
            if left < before:
                since = now
        await self.loop.sleep(wait_s)
        self.abort()

    async def _discard(self) -> None:
        """Read and drop the raw bytes up to the end: after close_notify in both directions TLS reads no more.

        With unread bytes the kernel resets a closed connection, and the other end loses unread data.
        """
        while not self._closed:
            try:
                if not socket.socket.recv(self._socket, HEAD_BLOCK):
                    return
            except BlockingIOError:
                await self.loop.readable(self._fileno())

    async def _say_end(self) -> None:
        while self.tls is not None:
            try:
                self.tls.unwrap()
            except ssl.SSLWantWriteError:  # the buffer has no room for close_notify
                await self.loop.writable(self._fileno())
                continue
            except ssl.SSLError:
                pass  # the other end's close_notify has not come; ours was sent
            break
        socket.socket.shutdown(self._socket, socket.SHUT_WR)

    async def close_after_sending(self) -> None:
        """Close a plain stream after the other end has received all bytes, or reset it after LINGER_S.

        The other end would never see a close that is queued behind unread bytes.
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
        """The number of sent bytes that the other end's kernel has not acknowledged."""
        try:
            return int.from_bytes(fcntl.ioctl(self._socket, termios.TIOCOUTQ, b"\0" * 4), sys.byteorder)
        except (OSError, ValueError):
            return 0

    def close(self) -> None:
        """Close at once. Idempotent."""
        if not self._closed:
            self._closed = True
            self._socket.close()

    def _fileno(self) -> int:
        return self._socket.fileno()


def tcp_socket(host: str) -> socket.socket:
    """A non-blocking socket of the address's family."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


async def connect(
    loop: Loop, host: str, port: int, timeout_s: float, make: Callable[[str], socket.socket] = tcp_socket
) -> Stream:
    """A plain connection to a server; `make` may create its socket in another network namespace. Raises OSError."""
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
