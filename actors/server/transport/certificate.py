"""Chooses the serving certificate: the configured, a cluster-signed or a self-signed one, in this order.

The files are the kubelet's: CERT_DIR/kubelet-server-current.pem and CERT_DIR/kubelet.crt with kubelet.key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from proto.agent.settings import Settings


class Pair(NamedTuple):
    """Paths of a certificate and its key, which may be one file."""

    certificate: str
    key: str


def choices(settings: Settings) -> tuple[Pair, ...]:
    """The candidates; the first whose files exist is used."""
    if settings.tls_cert_file and settings.tls_private_key_file:
        return (Pair(settings.tls_cert_file, settings.tls_private_key_file),)
    directory = settings.cert_dir
    current = f"{directory}/kubelet-server-current.pem"
    return Pair(current, current), Pair(f"{directory}/kubelet.crt", f"{directory}/kubelet.key")


def is_there(pair: Pair) -> bool:
    """True when both files exist."""
    return Path(pair.certificate).exists() and Path(pair.key).exists()


def self_sign(pair: Pair, node_name: str) -> None:
    """Write a self-signed certificate and its key, as the kubelet does. Raises OSError, PkiError."""
    from actors._pki.pki import Names, self_signed  # noqa: PLC0415 - once in a node's life

    os.makedirs(os.path.dirname(pair.certificate), mode=0o755, exist_ok=True)
    made = self_signed(Names(common_name=node_name, dns_names=(node_name,)))
    for path, content, mode in ((pair.key, made.key, 0o600), (pair.certificate, made.certificate, 0o644)):
        temporary = f"{path}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        os.replace(temporary, path)
