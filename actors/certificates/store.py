"""Certificate files in --cert-dir, in the kubelet's layout. Blocks on the disk.

`kubelet-client-current.pem` is a link to `kubelet-client-YYYY-MM-DD-hh-mm-ss.pem`, which holds a certificate and its
key; `kubelet-server-...` likewise. `kubelet-client.key.tmp` is the key of a request in progress. Source: client-go's
util/certificate/certificate_store.go.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from actors._host.files.paths import current_certificate

KEPT = 2
"""Files to keep: the present and the previous certificate. The kubelet never removes any; a node may live for years."""


class Store:
    """Files of one certificate. Every method raises OSError."""

    def __init__(self, directory: str, prefix: str) -> None:
        self._directory = Path(directory)
        self._prefix = prefix
        self.current = Path(current_certificate(directory, prefix))
        self._pending = self._directory / f"{prefix}.key.tmp"

    def read(self) -> bytes:
        """Certificate and key in use (PEM); empty without any."""
        return _read(self.current)

    def replace(self, certificate: bytes, key: str, now: float) -> bytes:
        """Replace certificate and key atomically; returns the new content of the file. `now` in Unix seconds."""
        return self.keep(joined(certificate, key.encode()), now)

    def keep(self, content: bytes, now: float) -> bytes:
        """As `replace`, with certificate and key as one PEM."""
        path = self._directory / f"{self._prefix}-{time.strftime('%Y-%m-%d-%H-%M-%S', time.gmtime(now))}.pem"
        write_private(path, content)
        link = self._directory / f"{self._prefix}-updated.pem"
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        link.replace(self.current)
        self.forget_key()
        self._remove_old()
        return content

    def pending_key(self) -> str:
        """Key of the request in progress; empty without any."""
        return _read(self._pending).decode("ascii", errors="replace")

    def keep_key(self, key: str) -> None:
        """Save the key, so that the next incarnation waits for the same request."""
        if self.pending_key() != key:
            write_private(self._pending, key.encode())

    def forget_key(self) -> None:
        """Remove the key of a finished request."""
        self._pending.unlink(missing_ok=True)

    def _remove_old(self) -> None:
        dated = sorted(
            path
            for path in self._directory.glob(f"{self._prefix}-[0-9]*.pem")
            if not path.is_symlink() and path != self.current.resolve()
        )
        for path in dated[: max(0, len(dated) - (KEPT - 1))]:
            with suppress(OSError):
                path.unlink()


def joined(certificate: bytes, key: bytes) -> bytes:
    """The content of a file with both (PEM)."""
    return certificate.rstrip() + b"\n" + key


def write_private(path: Path, content: bytes) -> None:
    """Replace a file that only root may read, atomically and synced. Raises OSError."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # without its key this node cannot authenticate any more
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
