"""A TCP or TLS connection of a probe, without blocking: a method that has to wait raises Wait with the event.

Errors have the texts of Go's net package. HTTP and probes are in other modules.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from actors._net.probing.poller import READ, WRITE
from actors._net.probing.target import is_address, joined

if TYPE_CHECKING:
    import ssl

BLOCK = 16 * 1024
"""The most bytes that one call receives."""
T = TypeVar("T")

_tls_context: ssl.SSLContext | None = None


class Failed(Exception):
    """The connection cannot be opened, or failed. The text goes into the kubelet's message."""


class Wait(Exception):
    """The call is incomplete: repeat it when the socket is ready for `event`."""

    def __init__(self, event: int) -> None:
        super().__init__()
        self.event = event


class Connection:
    """A connection to one address: `connect`, then `secure` for TLS, then `send` and `receive`; `close` at any time.

    Each method but `close` raises Wait or Failed.
    """

    def __init__(self, address: str, port: int) -> None:
        self.peer = joined(address, port)
        self._address = (address, port)
        self._unsent = b""
        try:
            self._socket: socket.socket = socket.socket(
                socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK
            )
        except OSError as error:
            raise Failed(f"dial tcp {self.peer}: socket: {go_text(error)}") from error
        self._tls: ssl.SSLObject | None = None
        self._incoming: ssl.MemoryBIO
        self._outgoing: ssl.MemoryBIO

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._socket.fileno()

    def connect(self) -> None:
        """Open the TCP connection. Returns when the peer has accepted it."""
        code = self._socket.connect_ex(self._address)
        if code in (errno.EINPROGRESS, errno.EALREADY):
            raise Wait(WRITE)
        if code not in (0, errno.EISCONN):
            raise Failed(f"dial tcp {self.peer}: connect: {go_text(OSError(code, ''))}")

    def secure(self, host: str) -> None:
        """Make the TLS handshake. Certificates are not verified, as in the kubelet."""
        import ssl  # noqa: PLC0415 - OpenSSL costs megabytes that a node without HTTPS probes saves

        if self._tls is None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            name = None if is_address(host) else host
            self._tls = _context().wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        try:
            self._step(self._tls.do_handshake)
        except BlockingIOError:
            raise Wait(READ) from None
        except ssl.SSLError as error:
            raise Failed(_tls_text(error)) from error
        except OSError as error:
            raise Failed(self._broken("read", error)) from error
        self.send()

    def _step(self, call: Callable[[], T]) -> T:
        """Call a method of `_tls`, with at most BLOCK received bytes. Raises OSError.

        The ssl module's own sockets go on until there is data. A server that updates its keys without end would hold
        the thread for as long as it likes.
        """
        import ssl  # noqa: PLC0415 - see `secure`

        with contextlib.suppress(ssl.SSLWantReadError):
            return call()
        self.send()
        if received := self._socket.recv(BLOCK):
            self._incoming.write(received)
        else:
            self._incoming.write_eof()
        try:
            return call()
        except ssl.SSLWantReadError:
            self.send()
            raise Wait(READ) from None

    def send(self, data: bytes = b"") -> None:
        """Send `data`. After Wait, call without data to send the rest."""
        if self._tls is not None:
            if data:
                self._tls.write(data)
            data = self._outgoing.read()
        self._unsent += data
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            raise Wait(WRITE) from None
        except OSError as error:
            raise Failed(self._broken("write", error)) from error

    def receive(self) -> bytes:
        """The next received bytes; empty at the end."""
        try:
            return (
                self._socket.recv(BLOCK) if self._tls is None else self._step(functools.partial(self._tls.read, BLOCK))
            )
        except BlockingIOError:
            raise Wait(READ) from None
        except OSError as error:
            if type(error).__name__ == "SSLEOFError":
                return b""  # closed without close_notify
            raise Failed(self._broken("read", error)) from error

    def _broken(self, operation: str, error: OSError) -> str:
        try:
            local = joined(*self._socket.getsockname()[:2])
        except OSError:
            local = ""
        return f"{operation} tcp {local}->{self.peer}: {operation}: {go_text(error)}"

    def close(self) -> None:
        """Close at once."""
        self._socket.close()


def go_text(error: OSError) -> str:
    """An errno as Go prints it: "connection refused"."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _context() -> ssl.SSLContext:
    global _tls_context  # noqa: PLW0603 - one per process, made when the first HTTPS probe runs
    if _tls_context is None:
        import ssl  # noqa: PLC0415 - see Connection.secure

        _tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _tls_context.check_hostname = False
        _tls_context.verify_mode = ssl.CERT_NONE
        _tls_context.set_ciphers("DEFAULT@SECLEVEL=0")  # a small key fails no probe
    return _tls_context


def _tls_text(error: ssl.SSLError) -> str:
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return "http: server gave HTTP response to HTTPS client"
    if type(error).__name__ in ("SSLEOFError", "SSLZeroReturnError"):
        return "EOF"
    return f"remote error: tls: {(error.reason or str(error)).lower().replace('_', ' ')}"
