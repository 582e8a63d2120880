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
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from urllib3 import HTTPHeaderDict

from actors._host.files.stamp import Stamp, stamp
from actors._kube.connection.kubeconfig import Access, Exec, KubeconfigError
from actors._kube.connection.kubeconfig import load as load_kubeconfig
from proto.common import rfc3339, untrusted

log = logging.getLogger(__name__)

TOKEN_FILE_S = 60.0
"""Greatest age of a token from a file, as in client-go."""
PLUGIN_S = 60.0
EXPIRY_MARGIN_S = 10.0
_HEADER = re.compile(r"[^\x00\r\n\u0100-\U0010ffff]*")
"""A header's value that http.client sends."""
_LEGAL_IN_NAMES = "!#$&'*+^`|"
"""Characters of a header's name beside letters, digits and `_.-~` (RFC 9110, 5.6.2), without the escape sign."""


class Identity(NamedTuple):
    """A client certificate with its key (PEM, or empty) and the headers of a request."""

    certificate: bytes
    key: bytes
    headers: HTTPHeaderDict
    """Each group and each extra value has a header of its own."""


class PluginStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of an ExecCredential: a token, a certificate with its key (PEM), or both."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """RFC 3339 needs a time zone. So no conversion of this time depends on the machine's zone, or fails."""


class _ExecCredential(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    status: PluginStatus | None = None


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
        self._use(access)

    def _use(self, access: Access) -> None:
        self.access = access
        self._token, self._token_read = "", 0.0
        self._plugin: PluginStatus | None = None
        self._pair: tuple[bytes, bytes] = (b"", b"")
        self._stamps: tuple[Any, ...] | None = None

    def current(self) -> Identity:
        """The identity to present now. Raises KubeconfigError."""
        with self._lock:
            self._look_at_files()
            if self._rotated and not (self._rotated == self._refused and self._has_others()):
                return Identity(self._rotated, self._rotated, HTTPHeaderDict())
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
            headers["Authorization"] = f"Bearer {token}"
        elif self.access.user.username:
            pair = f"{self.access.user.username}:{self.access.user.password}".encode(errors="replace")
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
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
            found = self.access.data("", user.token_file, "tokenFile").decode(errors="replace").strip()
            if found:
                self._token, self._token_read = found, self._now()
        return self._token or user.token

    def _impersonation(self) -> HTTPHeaderDict:
        # As client-go's transport/round_trippers.go: a header for each value, and an escaped key.
        user = self.access.user
        headers = HTTPHeaderDict()
        if user.impersonate:
            headers["Impersonate-User"] = user.impersonate
        if user.impersonate_uid:
            headers["Impersonate-Uid"] = user.impersonate_uid
        for group in user.impersonate_groups or ():
            headers.add("Impersonate-Group", group)
        for key, values in (user.impersonate_extra or {}).items():
            name = urllib.parse.quote(key, safe=_LEGAL_IN_NAMES, errors="replace")
            for value in values:
                headers.add(f"Impersonate-Extra-{name}", value)
        return headers

    def _of_plugin(self, plugin: Exec) -> PluginStatus:
        if self._plugin is None or _expired(self._plugin, self._now()):
            self._plugin = run_plugin(plugin, self.access)
        return self._plugin


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


def run_plugin(plugin: Exec, access: Access) -> PluginStatus:
    """The status of the ExecCredential that the plugin prints. Raises KubeconfigError."""
    where = f"credential plugin {plugin.command} of {access.path}"
    if plugin.interactive_mode == "Always":
        raise KubeconfigError(f"cannot run the {where}: it needs a terminal (interactiveMode: Always)")
    info: dict[str, Any] = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": {"interactive": False}}
    if plugin.provide_cluster_info:
        info["spec"]["cluster"] = _cluster_info(access)
    variables = {one.name: one.value for one in plugin.env or ()}
    environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    try:
        done = subprocess.run(
            [plugin.command, *(plugin.args or ())],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PLUGIN_S, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise KubeconfigError(f"cannot run the {where}: it is not there{hint}") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:  # ValueError: a NUL in an argument
        raise KubeconfigError(f"cannot run the {where}: {error}") from error
    if done.returncode != 0:
        said = done.stderr[-500:].decode(errors="replace").strip()
        raise KubeconfigError(f"the {where} failed with exit code {done.returncode}: {said}")
    return _plugin_status(done.stdout, plugin, where)


def _plugin_status(output: bytes, plugin: Exec, where: str) -> PluginStatus:
    try:
        printed = untrusted.decode_json(output, _ExecCredential)
    except msgspec.DecodeError as error:
        raise KubeconfigError(f"the {where} did not print an ExecCredential: {error}") from error
    if printed.api_version != plugin.api_version or printed.kind != "ExecCredential":
        raise KubeconfigError(f"the {where} printed {printed.kind} of {printed.api_version}")
    status = printed.status or PluginStatus()
    has_pair = [bool(status.client_certificate_data), bool(status.client_key_data)]
    if any(has_pair) != all(has_pair) or not (all(has_pair) or status.token):
        raise KubeconfigError(f"the {where} printed neither a token nor a certificate with its key")
    return status


def _cluster_info(access: Access) -> dict[str, Any]:
    cluster = access.cluster
    authority = access.data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": cluster.proxy_url,
    }
    return {name: value for name, value in info.items() if value}


def _validity(certificate: bytes, key: bytes) -> tuple[float, float] | None:
    """The certificate's validity (Unix seconds); None when it cannot be read. Raises pki.PkiUnavailable."""
    from actors._pki import pki  # noqa: PLC0415 - seldom needed

    try:
        found = pki.read(certificate.rstrip() + b"\n" + key)
    except pki.PkiError:
        return None
    return found.not_before, found.not_after


def _check(headers: HTTPHeaderDict, path: str) -> None:
    """Raise KubeconfigError for values that http.client refuses with a ValueError."""
    for name, text in headers.items():
        if not _HEADER.fullmatch(text):
            why = f"the header {name} would have a line end, or a character that is not Latin-1"
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
