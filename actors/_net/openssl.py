"""TLS for servers, by pyOpenSSL, which allows two things that the ssl module does not.

A client certificate that fails does not end the handshake. The kubelet judges it with each request: an unverified one
is answered 401, and a bearer token beside it still counts. A certificate counts only if OpenSSL verified it in this
handshake, and again after a change of the CAs. Sessions are never resumed, because a resumed one verifies nothing.

A read ends after each TLS message. In the ssl module it goes on to the next data, so a client could hold the thread.

Imported only by a server with TLS: it takes 14 MB.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cryptography.hazmat.bindings.openssl.binding import Binding
from cryptography.x509.oid import NameOID, ObjectIdentifier
from OpenSSL import SSL, crypto

from actors._net.tls import ClientCertificate, Verify

UID_OID = ObjectIdentifier("1.3.6.1.4.1.57683.2")
"""The part of a subject that has a Kubernetes user's UID."""
RECORD_BYTES = 16 * 1024
"""The most that one read returns: a record of TLS."""
_binding: Any = Binding()
_library = _binding.lib
_forget_errors: Callable[[], None] = _library.ERR_clear_error
"""Empty OpenSSL's error queue, which all connections of a thread share: OpenSSL 3 takes what one leaves there for an
error of the next one, and ends it."""


@_binding.ffi.callback("int(SSL *, void *)")  # type: ignore[untyped-decorator]
def _no_certificate(_session: Any, _data: Any) -> int:
    """OpenSSL's certificate callback: 0 ends the handshake with the alert internal_error."""
    return 0


class _Verification:
    """The certificates of one client's chain, counted by OpenSSL's verdict."""

    __slots__ = ("bad", "good")

    def __init__(self) -> None:
        self.good = self.bad = 0


def _note(connection: SSL.Connection, _certificate: crypto.X509, _error: int, _depth: int, ok: int) -> bool:
    """OpenSSL's verify callback, called for each certificate of a chain. False would end the handshake."""
    _forget_errors()  # of a forged signature: the handshake goes on, and its next wait would be taken for an error
    verification: _Verification = connection.get_app_data()
    if ok:
        verification.good += 1
    else:
        verification.bad += 1
    return True


class ServerContext:
    """Like ssl.SSLContext. Its methods raise OSError."""

    def __init__(self, minimum_version: int, ciphers: Sequence[str]) -> None:
        """A TLS version by its wire number, and OpenSSL's cipher names."""
        self._context = SSL.Context(SSL.TLS_SERVER_METHOD)
        self._context.set_min_proto_version(minimum_version)
        self._context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE)
        self._context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        self._context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # as the ssl module: 16 to 32 KB less for an idle connection
        self._context.set_alpn_select_callback(_choose_protocol)
        with _ssl_errors():
            self._context.set_cipher_list(":".join(ciphers).encode())

    def set_groups(self, names: Sequence[str]) -> tuple[str, ...]:
        """Exchange keys by these groups alone, the first ones preferred. Returns the known groups.

        OpenSSL is asked for each. Raises OSError when it knows none of them.
        """
        known = tuple(name for name in names if self._has_groups(name))
        if not known or not self._has_groups(":".join(known)):
            raise OSError(f"this OpenSSL has no key exchange {', '.join(names)}")
        return known

    def _has_groups(self, names: str) -> bool:
        """Set the groups of a list with colons; False when OpenSSL does not have all."""
        done = _library.SSL_CTX_set1_curves_list(self._context._context, names.encode())
        _forget_errors()
        return bool(done)

    def load_cert_chain(self, certificate: str, key: str) -> None:
        """Use the certificate chain and the key in these PEM files."""
        with _ssl_errors():
            self._context.use_certificate_chain_file(certificate)
            self._context.use_privatekey_file(key)
            self._context.check_privatekey()

    def refuse(self) -> None:
        """Fail each handshake for want of a certificate, with Go's alert: clients show `tls: internal error`."""
        _library.SSL_CTX_set_cert_cb(self._context._context, _no_certificate, _binding.ffi.NULL)

    def expires(self) -> float:
        """The end of the certificate as a Unix time; infinite when it cannot be read."""
        try:
            found = SSL.Connection(self._context, None).get_certificate(as_cryptography=True)
            return found.not_valid_after_utc.timestamp() if found is not None else math.inf
        except ValueError:  # OpenSSL accepts some encodings that this library refuses
            return math.inf

    def load_verify_locations(self, authority: str) -> None:
        """Ask clients for a certificate of the CA in the PEM file `authority`."""
        with _ssl_errors():
            self._context.load_verify_locations(authority)
        store = self._context.get_cert_store()
        assert store is not None
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)  # as in Go, the file may hold an intermediate CA alone
        self._context.set_verify(SSL.VERIFY_PEER, _note)

    def wrap_socket(
        self, connected: socket.socket, *, server_side: bool, do_handshake_on_connect: bool
    ) -> ServerSocket:
        """The connection with TLS on it; `connected` is detached. As ssl.SSLContext.wrap_socket without a handshake."""
        assert server_side
        assert not do_handshake_on_connect
        return ServerSocket(self._context, connected, self.verify)

    def verify(self, session: SSL.Connection) -> None:
        """Verify the certificate of a client that another context verified in its handshake, by the CAs of this one.

        Raises ssl.SSLCertVerificationError.
        """
        certificate, store = session.get_peer_certificate(), self._context.get_cert_store()
        assert certificate is not None
        assert store is not None
        try:
            crypto.X509StoreContext(store, certificate, session.get_peer_cert_chain()).verify_certificate()
        except crypto.X509StoreContextError as error:
            raise ssl.SSLCertVerificationError(f"the client's certificate cannot be verified now: {error}") from error
        finally:
            _forget_errors()


def _choose_protocol(_: SSL.Connection, offered: list[bytes]) -> Any:
    return b"http/1.1" if b"http/1.1" in offered else SSL.NO_OVERLAPPING_PROTOCOLS


class ServerSocket(socket.socket):
    """A non-blocking server's connection; its raw methods are those of socket.socket."""

    __slots__ = ("_certificate", "_session", "_verification", "_verified_by")

    def __init__(self, context: SSL.Context, connected: socket.socket, verify: Verify) -> None:
        super().__init__(connected.family, connected.type, connected.proto, fileno=connected.detach())
        self.setblocking(False)
        self._verification = _Verification()
        self._verified_by = verify
        self._certificate: ClientCertificate | None = None
        number: Any = self.fileno()  # not the socket itself: the reference cycle would keep 20 KB until a collection
        session = SSL.Connection(context, number)
        session.set_app_data(self._verification)
        session.set_accept_state()
        # A read ends after each message that is not data. Else a client that only updates its keys, as fast as they are
        # computed here, would keep the thread in one read for as long as it likes. Connection sets this mode itself.
        _library.SSL_clear_mode(session._ssl, _library.SSL_MODE_AUTO_RETRY)
        self._session: SSL.Connection | None = session

    def _open(self) -> SSL.Connection:
        if self._session is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._session

    def close(self) -> None:
        """Close at once. The session goes too: it has the descriptor's number, which another file may get."""
        self._session = None
        super().close()

    def do_handshake(self) -> None:
        """Go on with the handshake. Raises ssl.SSLWantReadError and ssl.SSLWantWriteError until it is complete."""
        with _ssl_errors():
            self._open().do_handshake()

    def recv(self, size: int, flags: int = 0) -> bytes:  # noqa: ARG002 - the base's signature
        """At least a byte; empty at the end, with close_notify or without. Raises OSError."""
        try:
            with _ssl_errors():
                return self._open().recv(min(size, RECORD_BYTES))
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""

    def send(self, data: Any, flags: int = 0) -> int:  # noqa: ARG002 - the base's signature
        """Send a part of the data; its size in bytes. Raises OSError."""
        with _ssl_errors():
            return self._open().send(data)

    def unwrap(self) -> None:
        """Send close_notify. Raises OSError."""
        with _ssl_errors():
            self._open().shutdown()

    def client_certificate(self, verify: Verify) -> ClientCertificate | None:
        """See TlsSocket. As in the kubelet, the CAs of now count with each request."""
        verification = self._verification
        if not verification.good and not verification.bad:
            return None
        if verification.bad:
            raise ssl.SSLCertVerificationError("the client's certificate cannot be verified")
        if verify != self._verified_by:
            verify(self._open())
            self._verified_by = verify
        if self._certificate is None:
            self._certificate = self._read_certificate()
        return self._certificate

    def _read_certificate(self) -> ClientCertificate:
        try:
            found = self._open().get_peer_certificate(as_cryptography=True)
            assert found is not None
            names = [str(name.value) for name in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
            organizations = found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
            uids = found.subject.get_attributes_for_oid(UID_OID)
            expires = found.not_valid_after_utc.timestamp()
        except (ValueError, TypeError) as error:  # OpenSSL accepts some encodings that this library refuses
            raise ssl.SSLCertVerificationError(f"the client's certificate cannot be read: {error}") from error
        # As in Go, the last of several common names.
        name, groups = names[-1] if names else "", tuple(str(one.value) for one in organizations)
        return ClientCertificate(name, groups, expires, tuple(str(one.value) for one in uids))


@contextlib.contextmanager
def _ssl_errors() -> Iterator[None]:
    _forget_errors()
    try:
        yield
    except SSL.Error as error:
        raise _as_ssl_error(error) from error


def _as_ssl_error(error: SSL.Error) -> OSError:
    """The exception that the ssl module raises in that place."""
    match error:
        case SSL.WantReadError():
            return ssl.SSLWantReadError()
        case SSL.WantWriteError():
            return ssl.SSLWantWriteError()
        case SSL.ZeroReturnError():
            return ssl.SSLZeroReturnError()
        case SSL.SysCallError() if error.args and error.args[0] > 0:
            return OSError(error.args[0], os.strerror(error.args[0]))
        case SSL.SysCallError():
            at_end = ssl.SSLEOFError("EOF in violation of the protocol")
            at_end.reason = "UNEXPECTED_EOF_WHILE_READING"  # made here it has no such attribute
            return at_end
    queue = error.args[0] if error.args else ()
    reasons = [reason for _, _, reason in queue]
    first = reasons[0] if reasons else "unknown error"
    made = ssl.SSLError(1, "; ".join(reasons) or first)
    made.reason = first.upper().replace(" ", "_")
    return made
