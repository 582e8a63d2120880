"""Builds images member by member for tests of the store, also malformed ones."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zstandard

from actors.runtime.images.manifest import ARCHITECTURE, MANIFESTS

NAME = "registry.test/made:1"


def entry(name: str, content: bytes | None = None, **attributes: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A tar member: a file with content, a directory without; keyword arguments are TarInfo's attributes."""
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
    info.mode = 0o755 if content is None else 0o644
    info.size = len(content or b"")
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content or b""


def symlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, b"", type=tarfile.SYMTYPE, linkname=target)


def hardlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, b"", type=tarfile.LNKTYPE, linkname=target)


def tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as file:
        for info, content in entries:
            file.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def packed(content: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(content, mtime=0)
    return zstandard.compress(content) if how == "zstd" else content


class Made:
    """An image's blobs by digest and its index, with methods that corrupt them."""

    def __init__(
        self, *layers: bytes, name: str = NAME, how: str = "", config: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.blobs: dict[str, bytes] = {}
        self.config: dict[str, Any] = {
            "os": "linux",
            "architecture": ARCHITECTURE,
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]},
        }
        self.layers = [self.blob(packed(one, how)) for one in layers]

    def blob(self, content: bytes, **more: Any) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blobs[digest] = content
        return {"digest": digest, "size": len(content), **more}

    def manifest(self) -> dict[str, Any]:
        config = self.blob(json.dumps(self.config).encode())
        return {"schemaVersion": 2, "mediaType": MANIFESTS[0], "config": config, "layers": self.layers}

    def described(self) -> dict[str, Any]:
        content = json.dumps(self.manifest()).encode()
        return self.blob(content, mediaType=MANIFESTS[0], annotations={"io.containerd.image.name": self.name})

    def write(self, directory: Path, *others: "Made") -> Path:
        """The image as an OCI layout."""
        blobs = directory / "blobs" / "sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        described = [made.described() for made in (self, *others)]
        for made in (self, *others):
            for digest, content in made.blobs.items():
                (blobs / digest.removeprefix("sha256:")).write_bytes(content)
        (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": described}))
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        return directory

    def write_archive(self, path: Path) -> Path:
        directory = self.write(path.with_suffix(".d"))
        with tarfile.open(path, "w") as file:
            file.add(directory, ".")
        return path
