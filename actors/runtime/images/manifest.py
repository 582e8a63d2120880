"""Parses and checks an image's documents: indexes, manifests and configurations of OCI and Docker v2.

https://github.com/opencontainers/image-spec
"""

from __future__ import annotations

import hashlib
import platform
from typing import TypeVar

import msgspec

from actors.runtime.images.blobs import checked_digest
from actors.runtime.images.errors import BadImage
from proto.common import untrusted

T = TypeVar("T")
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
ARCHITECTURE = _ARCHITECTURES.get(platform.machine(), platform.machine())


class Platform(msgspec.Struct, frozen=True):
    """The platform of a manifest in an index."""

    architecture: str = ""
    os: str = ""


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """A reference to a blob."""

    digest: str
    size: int
    media_type: str = ""
    platform: Platform | None = None
    annotations: dict[str, str] | None = None


class Index(msgspec.Struct, frozen=True):
    """Manifests for several platforms, or the images of a layout."""

    manifests: tuple[Descriptor, ...]


class Manifest(msgspec.Struct, frozen=True):
    """The configuration and layers of one image."""

    config: Descriptor
    layers: tuple[Descriptor, ...] = ()


class Execution(msgspec.Struct, frozen=True):
    """The default process of an image's containers."""

    user: str = msgspec.field(default="", name="User")
    env: list[str] | None = msgspec.field(default=None, name="Env")
    entrypoint: list[str] | None = msgspec.field(default=None, name="Entrypoint")
    cmd: list[str] | None = msgspec.field(default=None, name="Cmd")
    working_dir: str = msgspec.field(default="", name="WorkingDir")
    stop_signal: str = msgspec.field(default="", name="StopSignal")
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")


class RootFs(msgspec.Struct, frozen=True):
    """Digests of the uncompressed layers."""

    diff_ids: tuple[str, ...] = ()


class Config(msgspec.Struct, frozen=True):
    """An image's configuration."""

    rootfs: RootFs = RootFs()
    config: Execution | None = None
    architecture: str = ""
    os: str = ""


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    """Fields that tell an index from a manifest: both specifications only recommend the media type."""

    schema_version: int = 0
    media_type: str = ""
    manifests: msgspec.Raw = msgspec.Raw(b"")
    layers: msgspec.Raw = msgspec.Raw(b"")


def parse(content: bytes) -> Index | Manifest:
    """Parse an index or a manifest. Raises BadImage."""
    kind = _decode(content, _Kind, "manifest")
    if kind.schema_version != 2:
        raise BadImage(f"cannot use a manifest of schema {kind.schema_version}: only 2 is supported")
    if kind.media_type in INDEXES or (not kind.media_type and bytes(kind.manifests) and not bytes(kind.layers)):
        index = _decode(content, Index, "index")
        for one in index.manifests:
            _check(one)
        return index
    manifest = _decode(content, Manifest, "manifest")
    for one in (manifest.config, *manifest.layers):
        _check(one)
    return manifest


def parse_config(content: bytes, layers: int) -> Config:
    """Parse the configuration of an image with this number of layers. Raises BadImage."""
    config = _decode(content, Config, "configuration")
    if len(config.rootfs.diff_ids) != layers:
        raise BadImage(f"its configuration names {len(config.rootfs.diff_ids)} layers, its manifest {layers}")
    for digest in config.rootfs.diff_ids:
        checked_digest(digest)
    if config.os and (config.os, config.architecture) != ("linux", ARCHITECTURE):
        raise BadImage(f"it is for {config.os}/{config.architecture}, and this machine is linux/{ARCHITECTURE}")
    return config


def for_this_machine(index: Index) -> Descriptor:
    """The manifest, or inner index, for this machine. Raises BadImage."""
    images = [one for one in index.manifests if one.media_type in (*MANIFESTS, *INDEXES, "")]
    fitting = [
        one
        for one in images
        if one.platform and (one.platform.os, one.platform.architecture) == ("linux", ARCHITECTURE)
    ]
    if fitting:
        return fitting[0]
    if any_machine := [one for one in images if one.platform is None]:
        return any_machine[0]
    raise BadImage(f"it has no image for linux/{ARCHITECTURE}")


def chain_ids(diff_ids: tuple[str, ...]) -> list[str]:
    """An ID for each layer together with those below it (image-spec, config.md, Layer ChainID)."""
    chain: list[str] = []
    for diff_id in diff_ids:
        text = f"{chain[-1]} {diff_id}" if chain else ""
        chain.append(f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" if text else diff_id)
    return chain


def _check(descriptor: Descriptor) -> None:
    checked_digest(descriptor.digest)
    if descriptor.size < 0:
        raise BadImage(f"a blob of {descriptor.size} bytes")


def _decode(content: bytes, kind: type[T], what: str) -> T:
    try:
        return untrusted.decode_json(content, kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadImage(f"its {what} cannot be read: {error}") from error
