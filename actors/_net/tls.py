"""The server's side of a TLS connection, as `Stream` uses it: handshake, bytes, and the client's certificate.

Implemented by `openssl.ServerSocket`. It raises the ssl module's exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable


class ClientCertificate(NamedTuple):
    """A verified client certificate."""

    common_name: str
    organizations: tuple[str, ...]
    expires: float
    """notAfter as a Unix time."""
    uids: tuple[str, ...] = ()
    """The subject's values of UID_OID."""


Verify: TypeAlias = "Callable[[Any], None]"
"""`openssl.ServerContext.verify`."""


@runtime_checkable
class TlsSocket(Protocol):
    """A connected, non-blocking socket with TLS on it."""

    def do_handshake(self) -> None:
        """Go on with the handshake. Raises ssl.SSLWantReadError and ssl.SSLWantWriteError until it is complete."""

    def unwrap(self) -> object:
        """Send close_notify. Raises ssl.SSLError while the client has not sent its own."""

    def client_certificate(self, verify: Verify) -> ClientCertificate | None:
        """The client's certificate; None without one. Raises ssl.SSLCertVerificationError for an unverified one.

        `verify`: of the context in use now. A CA that was removed since the handshake verifies no certificate.
        """
