"""Builds the server's TLS context from certificate, key, client CA, versions, ciphers and key exchanges.

New connections check the files for changes, at most once a second. A rotated certificate or CA needs no restart.
"""

from __future__ import annotations

import logging
import math
import os
import ssl
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from actors._host.files.stamp import stamp

if TYPE_CHECKING:
    from actors._net.openssl import ServerContext

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Shortest interval between two checks of the certificate files for changes."""
VERSIONS = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
GROUPS = {
    4588: "X25519MLKEM768",
    4587: "SecP256r1MLKEM768",
    4589: "SecP384r1MLKEM1024",
    29: "X25519",
    23: "secp256r1",
    24: "secp384r1",
    25: "secp521r1",
}
"""OpenSSL's names of key exchanges by their number, the preferred ones first, as in Go."""
_PARTS = {"AES_128": "AES128", "AES_256": "AES256", "3DES_EDE_CBC": "DES-CBC3", "_CBC": "", "RC4_128": "RC4"}


_FAILING = "the previous certificate has expired, and TLS handshakes fail"


class TlsFiles(NamedTuple):
    """Paths of PEM files. With an empty `authority` no client certificate is asked for.

    With an empty `certificate` each handshake fails.
    """

    certificate: str
    key: str
    authority: str = ""


def cipher_name(name: str) -> str:
    """OpenSSL's name for the IANA name of a cipher suite of TLS 1.2 or older.

    Empty for suites of TLS 1.3, which are not configurable, as in Go.
    """
    exchange, separator, rest = name.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return ""
    if rest.startswith("CHACHA20_POLY1305"):
        rest = "CHACHA20_POLY1305"
    for iana, ours in _PARTS.items():
        rest = rest.replace(iana, ours)
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + rest.replace("_", "-")


def context(
    files: TlsFiles, min_version: str = "", cipher_suites: Iterable[str] = (), curves: Iterable[int] = ()
) -> ServerContext:  # fmt: skip
    """A context of what the files hold now. Raises OSError with the file in its text; ssl.SSLError is an OSError.

    `curves`: the allowed key exchanges, in any order, as in Go; empty for OpenSSL's choice.
    """
    from actors._net.openssl import ServerContext  # noqa: PLC0415 - 14 MB that a server without TLS saves

    if problem := problem_of(files):  # the calls below would wait for a FIFO, and ask for a passphrase at a terminal
        raise OSError(problem)
    version = VERSIONS.get(min_version, ssl.TLSVersion.TLSv1_2)
    ciphers = [found for name in cipher_suites if (found := cipher_name(name))]
    default = [one["name"] for one in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()]
    made = ServerContext(version.value, ciphers or default)
    if allowed := set(curves):
        _allow_groups(made, [name for number, name in GROUPS.items() if number in allowed])
    try:
        if files.certificate:
            made.load_cert_chain(files.certificate, files.key)
        else:
            made.refuse()
    except (OSError, ValueError) as error:
        raise OSError(f"cannot use the certificate {files.certificate} with the key {files.key}: {error}") from error
    if files.authority:
        try:
            made.load_verify_locations(files.authority)
        except (OSError, ValueError) as error:
            raise OSError(f"cannot use the client certificate authority {files.authority}: {error}") from error
    return made


def _allow_groups(made: ServerContext, names: list[str]) -> None:
    """Allow these groups. OpenSSL before 3.5 has none with ML-KEM, where the kubelet has them."""
    try:
        known = made.set_groups(names)
    except OSError as error:
        raise OSError(f"cannot use tlsCurvePreferences: {error}; allow another one, such as X25519 (29)") from error
    if missing := [name for name in names if name not in known]:
        without = ", ".join(missing)
        log.warning("tlsCurvePreferences: this OpenSSL has no %s; serving with %s", without, ", ".join(known))


def _unreadable(path: str) -> str:
    """Why a path is no file that may be read; empty when it is one. A FIFO would keep the thread, here the server's."""
    try:
        return "" if stat.S_ISREG(os.stat(path).st_mode) else "it is no file"
    except OSError as error:
        return error.strerror or str(error)


def problem_of(files: TlsFiles) -> str:
    """Why `context` would fail with these files; empty when it would not, as far as the standard library tells."""
    parts = {"certificate": files.certificate, "key": files.key, "client certificate authority": files.authority}
    for what, path in parts.items():
        if path and (why := _unreadable(path)):
            return f"cannot use the {what} {path}: {why}; mend it, or correct the configuration"
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.set_ciphers("ALL:@SECLEVEL=0")  # the real context decides on weak keys
    named = f"certificate {files.certificate} with the key {files.key}"
    try:
        if files.certificate:
            made.load_cert_chain(files.certificate, files.key, password="")  # without it OpenSSL asks at the terminal
        named = f"client certificate authority {files.authority}"
        if files.authority:
            made.load_verify_locations(files.authority)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or str(error)
        return f"cannot use the {named}: {why}; mend it, or correct the configuration"
    return ""


class Certificates:
    """Keeps the context in use up to date. Unusable or missing files are logged and leave it as it is."""

    def __init__(
        self,
        choices: Iterable[TlsFiles],
        min_version: str = "",
        cipher_suites: Iterable[str] = (),
        curves: Iterable[int] = (),
        *,
        only_valid: bool = False,
    ) -> None:
        """The first of `choices` whose certificate exists is used, else the last one.

        `only_valid`: after its end handshakes fail, as in the kubelet with a certificate of the cluster.
        """
        self._choices = tuple(choices)
        self._protocol = min_version, tuple(cipher_suites), tuple(curves)
        self._only_valid = only_valid
        self._seen: tuple[object, ...] = ()
        self._context: ServerContext | None = None
        self._expires = math.inf
        self._expired = False
        self._look_at = 0.0
        self.loads = 0

    def current(self) -> ServerContext:
        """The context for a new connection. Raises OSError while no files were usable yet."""
        now = time.monotonic()
        if self._context is not None and now < self._look_at:
            return self._context
        self._look_at = now + LOOK_S
        files = self._chosen()
        seen = (files, *(stamp(path) for path in files))
        if self._context is None or seen != self._seen or self._expired != self._is_over():
            self._load(files, seen)
        assert self._context is not None
        return self._context

    def problem(self) -> str:
        """Why no connection can be served; empty once a context is in use. Changes nothing, so any thread may call it.

        Without a certificate there is none: handshakes fail until the cluster has signed one.
        """
        return "" if self._context is not None else problem_of(self._chosen())

    def _chosen(self) -> TlsFiles:
        return next((one for one in self._choices if Path(one.certificate).is_file()), self._choices[-1])

    def _is_over(self) -> bool:
        return time.time() >= self._expires  # in both directions, since a clock may be set back

    def _load(self, files: TlsFiles, seen: tuple[object, ...]) -> None:
        try:
            made = context(files, *self._protocol)
            self._expires = made.expires() if self._only_valid and files.certificate else math.inf
            self._expired = self._is_over()
            if self._expired:
                made = context(files._replace(certificate="", key=""), *self._protocol)
        except OSError as error:
            if self._context is None:
                raise
            self._expired = self._is_over()
            if self._expired:
                self._context.refuse()
            log.error("%s; %s", error, _FAILING if self._expired else "the previous certificate stays in use")
        else:
            self._context = made
            self.loads += 1
            self._report(files)
        self._seen = seen

    def _report(self, files: TlsFiles) -> None:
        if not files.certificate:
            log.warning("no serving certificate yet: TLS handshakes fail until the cluster has signed one")
        elif self._expired:
            log.warning("the certificate %s has expired: TLS handshakes fail until there is another", files.certificate)
        else:
            log.info("serving with the certificate %s", files.certificate)
