"""Client certificates that cannot be verified, without an end of the handshake for it: who has one is told 401.

The kubelet asks for a certificate and judges it with the request, so that its clients get an answer of HTTP, and a good
bearer token counts beside a certificate that is nobody's. OpenSSL can do that (SSL_CTX_set_verify(3)), and Python's ssl
does not hand it on: there such a handshake ends. So OpenSSL is told here, through ctypes, where that is found to work.

A certificate counts only if OpenSSL has said so in this very handshake, and never the contrary. No session is taken up
again: there nothing would be verified.
"""

from __future__ import annotations

import ctypes
import logging
import ssl
import threading
from typing import Any

from actors._base.process.run_in_subprocess import SubprocessError, run_in_subprocess

log = logging.getLogger(__name__)

_PROBE_S = 5.0
_VERIFY_PEER = 1  # SSL_VERIFY_PEER
_SET_SESSION_CACHE_MODE, _NO_SESSIONS = 44, 0  # SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_here = threading.local()


class Verification:
    """What OpenSSL has said of the certificates of one client."""

    __slots__ = ("bad", "good")

    def __init__(self) -> None:
        self.good = self.bad = 0

    @property
    def passed(self) -> bool:
        """Whether there are any, and nothing is wrong with them."""
        return self.good > 0 and self.bad == 0

    def begin(self) -> None:
        """What this thread's next step of a handshake says is of this client."""
        _here.verification = self

    def end(self) -> None:
        """The handshake is over. What OpenSSL holds against a certificate is no error of the next thing it does."""
        _here.verification = None
        if self.bad:
            _Library().clear_errors()


class LaterJudged(ssl.SSLContext):
    """A server's context with which each handshake goes on, whatever its client's certificate is."""


def _note(ok: int, _: int | None) -> int:
    """For each certificate of a chain, in the thread that does the handshake. 0 ends it, as ssl's own would."""
    verification: Verification | None = getattr(_here, "verification", None)
    if verification is None:
        return 0
    if ok:
        verification.good += 1
    else:
        verification.bad += 1
    return 1


_NOTE = _Callback(_note)


class _Library:
    """The OpenSSL that the ssl module uses. Raises AttributeError, OSError or ImportError where it is out of reach."""

    def __init__(self) -> None:
        import _ssl  # noqa: PLC0415 - a module of CPython's own

        library = ctypes.CDLL(_ssl.__file__)  # what that is linked with is looked through as well
        self.verify_mode = library.SSL_CTX_get_verify_mode
        self.verify_mode.argtypes, self.verify_mode.restype = [ctypes.c_void_p], ctypes.c_int
        self.set_verify = library.SSL_CTX_set_verify
        self.set_verify.argtypes, self.set_verify.restype = [ctypes.c_void_p, ctypes.c_int, _Callback], None
        self.clear_errors = library.ERR_clear_error
        self.clear_errors.argtypes, self.clear_errors.restype = [], None
        self.control = library.SSL_CTX_ctrl
        self.control.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
        self.control.restype = ctypes.c_long


def judge_later(context: LaterJudged) -> None:
    """Let handshakes with it go on. Only where `available`."""
    library = _Library()
    pointer = _pointer(context)
    context.options |= ssl.OP_NO_TICKET
    library.control(pointer, _SET_SESSION_CACHE_MODE, _NO_SESSIONS, None)
    library.set_verify(pointer, _VERIFY_PEER, _NOTE)


def _pointer(context: ssl.SSLContext) -> Any:
    """The SSL_CTX of a context: what comes first in CPython's object of it (Modules/_ssl.c, PySSLContext)."""
    return ctypes.c_void_p.from_address(id(context) + object.__basicsize__)


def available() -> bool:
    """Whether this Python and its OpenSSL are as is taken for granted here. For a pool thread: it waits.

    Tried in a child process, which a wrong guess would end.
    """
    try:
        return run_in_subprocess(_probe, _PROBE_S) == b"yes"
    except (SubprocessError, OSError) as error:
        log.warning("a client certificate of another authority will end its connection, without an answer: %s", error)
        return False


def _probe() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    modes = {ssl.CERT_NONE: 0, ssl.CERT_OPTIONAL: 1, ssl.CERT_REQUIRED: 3}
    library = _Library()
    for mode, value in modes.items():
        context.verify_mode = mode
        if library.verify_mode(_pointer(context)) != value:
            raise LookupError("CPython's SSLContext is not as it is known")
    return b"yes"
