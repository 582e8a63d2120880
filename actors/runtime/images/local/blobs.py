"""Documents of images by their digest, and big blobs on their way in. Files, each written whole or not at all."""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path

from actors.runtime.images.registry.errors import BadImage

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def checked_digest(digest: object) -> str:
    """The digest, which is one of sha256. Raises BadImage."""
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise BadImage(f"a digest that is none of sha256: {str(digest)[:100]!r}")
    return digest


def digest_of(content: bytes) -> str:
    """The digest, as `sha256:HEX`."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Documents:
    """Manifests and configurations in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, digest: str, content: bytes) -> None:
        """Keep `content`. Raises BadImage when it has another digest, OSError."""
        if (found := digest_of(content)) != digest:
            raise BadImage(f"a document has the digest {found} where its name is {digest}")
        path = self._path(digest)
        temporary = path.with_name(f".{path.name}.{threading.get_ident()}")
        temporary.write_bytes(content)
        temporary.replace(path)

    def get(self, digest: str) -> bytes:
        """Raises OSError when it is not there, BadImage when the disk has changed it."""
        content = self._path(digest).read_bytes()
        if digest_of(content) != digest:
            raise BadImage(f"{self._path(digest)} is damaged; pull or import the image again")
        return content

    def keep_only(self, digests: set[str]) -> None:
        """Remove all others."""
        names = {digest.removeprefix("sha256:") for digest in digests}
        for path in self._directory.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._directory / checked_digest(digest).removeprefix("sha256:")
