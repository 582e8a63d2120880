"""Digests, and the store's documents by digest: files that are each written atomically."""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path

from actors.runtime.images.errors import BadImage

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def checked_digest(digest: object) -> str:
    """Return the digest if it is a sha256 one. Raises BadImage."""
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise BadImage(f"not a sha256 digest: {str(digest)[:100]!r}")
    return digest


def digest_of(content: bytes) -> str:
    """The digest of `content`, as `sha256:HEX`."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Documents:
    """Manifests and configurations in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, digest: str, content: bytes) -> None:
        """Write a document. Raises BadImage when its digest differs, OSError."""
        if (found := digest_of(content)) != digest:
            raise BadImage(f"a document has the digest {found} where its name is {digest}")
        path = self._path(digest)
        temporary = path.with_name(f".{path.name}.{threading.get_ident()}")
        temporary.write_bytes(content)
        temporary.replace(path)

    def get(self, digest: str) -> bytes:
        """Read a document. Raises OSError for a missing one, BadImage for a damaged one."""
        content = self._path(digest).read_bytes()
        if digest_of(content) != digest:
            raise BadImage(f"{self._path(digest)} is damaged; pull or import the image again")
        return content

    def keep_only(self, digests: set[str]) -> None:
        """Remove all other documents."""
        names = {digest.removeprefix("sha256:") for digest in digests}
        for path in self._directory.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._directory / checked_digest(digest).removeprefix("sha256:")
