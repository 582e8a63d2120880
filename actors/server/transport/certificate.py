"""Chooses the serving certificate, as the kubelet does.

With serverTLSBootstrap the cluster signs it: CERT_DIR/kubelet-server-current.pem. Until this file is there, the
configured certificate serves, and without one TLS handshakes fail. With the setting off the configured certificate
serves, or a self-signed one: CERT_DIR/kubelet.crt with kubelet.key. Source: InitializeTLS and client-go's
certificate_store.go.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from actors._host.files.paths import current_certificate
from proto.agent.settings import Settings


class Pair(NamedTuple):
    """Paths of a certificate and its key, which may be one file."""

    certificate: str
    key: str


NONE = Pair("", "")


def choices(settings: Settings) -> tuple[Pair, ...]:
    """The candidates; the first whose certificate exists is used, else the last one."""
    configured = Pair(settings.tls_cert_file, settings.tls_private_key_file)
    if settings.server_tls_bootstrap:
        current = current_certificate(settings.cert_dir, "kubelet-server")
        return Pair(current, current), *((configured,) if all(configured) else ()), NONE
    return (configured if all(configured) else _own(settings),)


def wants_own(settings: Settings) -> bool:
    """True when a certificate is to be self-signed first."""
    own = _own(settings)
    return choices(settings) == (own,) and not (Path(own.certificate).exists() and Path(own.key).exists())


def _own(settings: Settings) -> Pair:
    return Pair(f"{settings.cert_dir}/kubelet.crt", f"{settings.cert_dir}/kubelet.key")


def self_sign(settings: Settings) -> None:
    """Write a self-signed certificate and its key, as the kubelet does. Raises OSError, PkiError."""
    from actors._pki.pki import Names, self_signed  # noqa: PLC0415 - once in a node's life

    pair = _own(settings)
    os.makedirs(os.path.dirname(pair.certificate), mode=0o755, exist_ok=True)
    made = self_signed(Names(common_name=settings.node_name, dns_names=(settings.node_name,)))
    for path, content, mode in ((pair.key, made.key, 0o600), (pair.certificate, made.certificate, 0o644)):
        temporary = f"{path}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        os.replace(temporary, path)
