"""The certificates in --cert-dir, in the kubelet's layout. Blocks as the disk does.

`kubelet-client-current.pem` is a link to `kubelet-client-YYYY-MM-DD-hh-mm-ss.pem`, which holds a certificate and its
key; `kubelet-server-...` likewise. `kubelet-client.key.tmp` is the key of a request under way. Source: client-go's
util/certificate/certificate_store.go.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

KEPT = 2
"""The present certificate and the one before; the kubelet never removes any, and a node may live for years."""


class Store:
    """One certificate's files. Every method raises OSError."""

    def __init__(self, directory: str, prefix: str) -> None:
        self._directory = Path(directory)
        self._prefix = prefix
        self.current = self._directory / f"{prefix}-current.pem"
        self._pending = self._directory / f"{prefix}.key.tmp"

    def read(self) -> bytes:
        """Certificate and key (PEM) that are in use; empty when there are none."""
        return _read(self.current)

    def replace(self, certificate: bytes, key: str, now: float) -> bytes:
        """Put a new one in its place: a reader finds the old one or the new one, whole. What `read` gives from now."""
        path = self._directory / f"{self._prefix}-{time.strftime('%Y-%m-%d-%H-%M-%S', time.gmtime(now))}.pem"
        content = certificate.rstrip() + b"\n" + key.encode()
        self._write(path, content)
        link = self._directory / f"{self._prefix}-updated.pem"
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        link.replace(self.current)
        self.forget_key()
        self._remove_old()
        return content

    def pending_key(self) -> str:
        """The key of the request under way; empty when there is none."""
        return _read(self._pending).decode("ascii", errors="replace")

    def keep_key(self, key: str) -> None:
        """Remember it: a successor goes on waiting for the same request."""
        if self.pending_key() != key:
            self._write(self._pending, key.encode())

    def forget_key(self) -> None:
        """The next request has another key."""
        self._pending.unlink(missing_ok=True)

    def _write(self, path: Path, content: bytes) -> None:
        self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # without its key the cluster would not let this node in again
        temporary.replace(path)

    def _remove_old(self) -> None:
        dated = sorted(
            path
            for path in self._directory.glob(f"{self._prefix}-[0-9]*.pem")
            if not path.is_symlink() and path != self.current.resolve()
        )
        for path in dated[: max(0, len(dated) - (KEPT - 1))]:
            with suppress(OSError):
                path.unlink()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
