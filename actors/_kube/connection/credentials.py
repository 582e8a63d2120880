"""The present credentials for the API server: rotated tokens and certificates, and credential plugins.

With rotateCertificates the node's certificate is in --cert-dir, and counts before what the kubeconfig names, as in the
kubelet: the kubeconfig may be read-only. Refused there, as by another cluster, it gives way to the kubeconfig's.

Calls may block; they run in a client's own threads. Source: client-go's transport and exec plugin.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import re
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from actors._host.files.stamp import Stamp, stamp
from actors._kube.connection.http1 import Headers
from actors._kube.connection.kubeconfig import Access, Exec, KubeconfigError
from actors._kube.connection.kubeconfig import load as load_kubeconfig
from actors._kube.connection.plugin import PluginRun, PluginStatus, run_plugin
from proto.common import rfc3339

log = logging.getLogger(__name__)

TOKEN_FILE_S = 60.0
"""Greatest age of a token from a file, as in client-go."""
TOKEN_AGAIN_S = 5.0
"""Time to the next try after a token file could not be read."""
EXPIRY_MARGIN_S = 10.0
_HEADER = re.compile(r"[^\x00\n\x0b\x0c\r\u0100-\U0010ffff]*")
"""A header's value that HTTP allows."""
_LEGAL_IN_NAMES = "!#$&'*+^`|"
"""Characters of a header's name beside letters, digits and `_.-~` (RFC 9110, 5.6.2), without the escape sign."""


class Identity(NamedTuple):
    """A client certificate with its key (PEM, or empty) and the headers of a request."""

    certificate: bytes
    key: bytes
    headers: Headers
    """Each group and each extra value has a header of its own."""


class Credentials:
    """The credentials of one kubeconfig. Changed files are read again, because rotation replaces them."""

    def __init__(self, access: Access, now: Callable[[], float] = time.time, rotated: str = "") -> None:
        """`rotated`: path of the certificate and key that count before the user's credentials; empty for none."""
        self._now = now
        self._lock = threading.Lock()
        self._read: tuple[tuple[bytes, bytes], tuple[float, float] | None] = ((b"", b""), None)
        """A refused certificate and key, and the certificate's validity (Unix seconds)."""
        self._rotated_path, self._rotated = rotated, b""
        self._rotated_stamp: Stamp | None = None
        self._refused = b""
        """The rotated certificate while the server refuses it."""
        self.plugin_run: PluginRun | None = None
        """The last run of the plugin."""
        self.on_plugin: Callable[[PluginRun], None] = lambda run: None  # noqa: ARG005 - the signature
        """A run of the plugin has begun, or ended."""
        self._use(access)

    def _use(self, access: Access) -> None:
        self.access = access
        self._token, self._token_read = "", 0.0
        self._token_problem = ""
        """Why the token file could not be read, once that is logged."""
        self._plugin: PluginStatus | None = None
        self._pair: tuple[bytes, bytes] = (b"", b"")
        self._stamps: tuple[Any, ...] | None = None

    def current(self) -> Identity:
        """The identity to present now. Raises KubeconfigError."""
        with self._lock:
            self._look_at_files()
            if self._rotated and not (self._rotated == self._refused and self._has_others()):
                return Identity(self._rotated, self._rotated, [])
            return self._of_kubeconfig()

    def _of_kubeconfig(self) -> Identity:
        certificate, key = self._pair
        headers = self._impersonation()
        token = self._static_token()
        if not token and self.access.user.exec is not None:
            status = self._of_plugin(self.access.user.exec)
            token = status.token or ""
            if status.client_certificate_data and status.client_key_data:
                certificate, key = status.client_certificate_data.encode(), status.client_key_data.encode()
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        elif self.access.user.username:
            pair = f"{self.access.user.username}:{self.access.user.password}".encode(errors="replace")
            headers.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
        _check(headers, self.access.path)
        return Identity(certificate, key, headers)

    def _has_others(self) -> bool:
        """True when the kubeconfig has other credentials than the rotated certificate."""
        user, certificate = self.access.user, self._pair[0]
        return bool(
            (certificate and certificate.strip() not in self._rotated)
            or user.token or user.token_file or user.exec or user.username
        )  # fmt: skip

    def refused(self, identity: Identity) -> None:
        """The server refused this identity: run the plugin and read the token file again.

        A refused rotated certificate gives way to the kubeconfig's credentials, until it is replaced or they are
        refused as well.
        """
        with self._lock:
            self._plugin, self._token_read = None, 0.0
            self._refused = self._rotated if self._rotated and identity.certificate == self._rotated else b""

    def why_refused(self, identity: Identity) -> str:
        """A message's end when the client certificate has expired or is not valid yet; else empty. Takes half a second
        for a new certificate."""
        with self._lock:
            pair = identity[:2]
            if pair[0] and self._read[0] != pair:
                try:
                    self._read = (pair, _validity(*pair))
                except OSError:  # the next refusal tells
                    return ""
            validity = self._read[1] if pair[0] else None
            path = self._rotated_path if pair[0] == self._rotated else self.access.path
        return "" if validity is None else _words(*validity, self._now(), path)

    def _look_at_rotated(self) -> None:
        """Read the rotated certificate again when it has changed. An unusable or missing one does not count."""
        found = stamp(self._rotated_path) if self._rotated_path else None
        if found == self._rotated_stamp:
            return
        self._rotated, self._rotated_stamp = b"", found
        if found is None:
            return
        try:
            content = Path(self._rotated_path).read_bytes()
            load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), content)
        except OSError as error:  # ssl.SSLError is one
            log.warning("cannot use the certificate %s: %s", self._rotated_path, error)
        else:
            self._rotated = content

    def _look_at_files(self) -> None:
        """Read changed files again. A file that is missing during its replacement changes nothing."""
        self._look_at_rotated()
        found = stamp(self.access.path)
        if found is not None and found != self.access.stamp:
            with contextlib.suppress(KubeconfigError):  # it is read again with the next call
                self._use(load_kubeconfig(self.access.path))
        user = self.access.user
        # Taken before reading: files that change meanwhile are read again with the next call, so that a certificate
        # does not stay with the key of another.
        stamps = (stamp(user.client_certificate), stamp(user.client_key))
        if stamps == self._stamps:
            return
        try:
            pair = (
                self.access.data(user.client_certificate_data, user.client_certificate, "client-certificate"),
                self.access.data(user.client_key_data, user.client_key, "client-key"),
            )
        except KubeconfigError:
            if not self._pair[0]:
                raise
            return
        self._pair, self._stamps = pair, stamps

    def _static_token(self) -> str:
        user = self.access.user
        if user.token_file and not 0 <= self._now() - self._token_read < TOKEN_FILE_S:  # a clock may go back
            try:
                found = self.access.data("", user.token_file, "tokenFile").decode(errors="replace").strip()
            except KubeconfigError as error:  # as in client-go: the file may be missing during its replacement
                if not self._token:
                    raise
                if str(error) != self._token_problem:
                    log.warning("%s; using the token that was read before", error)
                self._token_problem = str(error)
                self._token_read = self._now() - TOKEN_FILE_S + TOKEN_AGAIN_S
                return self._token
            if found:
                self._token, self._token_read, self._token_problem = found, self._now(), ""
        return self._token or user.token

    def _impersonation(self) -> list[tuple[str, str]]:
        # As client-go's transport/round_trippers.go: a header for each value, and an escaped key.
        user = self.access.user
        headers: list[tuple[str, str]] = []
        if user.impersonate:
            headers.append(("Impersonate-User", user.impersonate))
        if user.impersonate_uid:
            headers.append(("Impersonate-Uid", user.impersonate_uid))
        headers += [("Impersonate-Group", group) for group in user.impersonate_groups or ()]
        for key, values in (user.impersonate_extra or {}).items():
            name = urllib.parse.quote(key, safe=_LEGAL_IN_NAMES, errors="replace")
            headers += [(f"Impersonate-Extra-{name}", value) for value in values]
        return headers

    def _of_plugin(self, plugin: Exec) -> PluginStatus:
        if self._plugin is None or _expired(self._plugin, self._now()):
            try:
                self._plugin = run_plugin(plugin, self.access, self._plugin_started)
            finally:
                if self.plugin_run is not None and not self.plugin_run.ended:
                    self._tell(self.plugin_run._replace(ended=time.monotonic()))
        return self._plugin

    def _plugin_started(self, name: str, pid: int) -> None:
        self._tell(PluginRun(name, pid, time.monotonic()))

    def _tell(self, run: PluginRun) -> None:
        self.plugin_run = run
        self.on_plugin(run)


def load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Load certificate and key from a memfd: ssl reads certificates from files only, and keys must not go to disk.

    Raises ssl.SSLError.
    """
    descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _validity(certificate: bytes, key: bytes) -> tuple[float, float] | None:
    """The certificate's validity (Unix seconds); None when it cannot be read. Raises pki.PkiUnavailable."""
    from actors._pki import pki  # noqa: PLC0415 - seldom needed

    try:
        found = pki.read(certificate.rstrip() + b"\n" + key)
    except pki.PkiError:
        return None
    return found.not_before, found.not_after


def _check(headers: Headers, path: str) -> None:
    """Raise KubeconfigError for values that HTTP does not allow."""
    for name, text in headers:
        if not _HEADER.fullmatch(text):
            why = f"the header {name} would have a line end, or another character that HTTP does not allow"
            raise KubeconfigError(f"cannot use the credentials of {path}: {why}")


def _words(not_before: float, not_after: float, now: float, path: str) -> str:
    if now >= not_after:
        return f"; the client certificate of {path} expired at {rfc3339.seconds(not_after)}"
    if now < not_before:
        begins = rfc3339.seconds(not_before)
        return f"; the client certificate of {path} is not good before {begins}: is the clock right?"
    return ""


def _expired(status: PluginStatus, now: float) -> bool:
    end = status.expiration_timestamp
    return end is not None and end.timestamp() - EXPIRY_MARGIN_S <= now
