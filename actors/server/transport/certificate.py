"""Which certificate the server shows: the configured one, else the one that the cluster signed, else one that it makes.

Names and places are the kubelet's: CERT_DIR/kubelet-server-current.pem and CERT_DIR/kubelet.crt with kubelet.key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from proto.agent.settings import Settings


class Pair(NamedTuple):
    """Files; a certificate and its key may be in the same one."""

    certificate: str
    key: str


def choices(settings: Settings) -> tuple[Pair, ...]:
    """By what the first that is there comes before the others."""
    if settings.tls_cert_file and settings.tls_private_key_file:
        return (Pair(settings.tls_cert_file, settings.tls_private_key_file),)
    directory = settings.cert_dir
    current = f"{directory}/kubelet-server-current.pem"
    return Pair(current, current), Pair(f"{directory}/kubelet.crt", f"{directory}/kubelet.key")


def is_there(pair: Pair) -> bool:
    """Whether both files are."""
    return Path(pair.certificate).exists() and Path(pair.key).exists()


def self_sign(pair: Pair, node_name: str) -> None:
    """Make a certificate that nobody vouches for, as the kubelet does. Raises OSError, PkiError."""
    from actors._pki.pki import Names, self_signed  # noqa: PLC0415 - once in a node's life

    os.makedirs(os.path.dirname(pair.certificate), mode=0o755, exist_ok=True)
    made = self_signed(Names(common_name=node_name, dns_names=(node_name,)))
    for path, content, mode in ((pair.key, made.key, 0o600), (pair.certificate, made.certificate, 0o644)):
        temporary = f"{path}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        os.replace(temporary, path)
