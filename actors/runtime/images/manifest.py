"""Parses and checks an image's documents: indexes, manifests and configurations of OCI and Docker v2.

https://github.com/opencontainers/image-spec
"""

from __future__ import annotations

import hashlib
import platform
from typing import TYPE_CHECKING, Any, TypeVar

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
_VARIANTS = {"amd64": ("", "1"), "arm": ("7", "", "6", "5"), "arm64": ("", "8")}
"""Variants of an architecture that run on each of its machines, the best first; others need a newer CPU.

https://github.com/containerd/platforms/blob/main/compare.go, platformVector. The `v` before the number may be missing.
"""


if TYPE_CHECKING:
    Text = str
    TextList = list[str]
    TextMap = dict[str, str]
    Digests = tuple[str, ...]
else:
    Text = str | None
    TextList = list[str | None]
    TextMap = dict[str, str | None]
    Digests = tuple[str | None, ...] | None


class _Document(msgspec.Struct, frozen=True):
    """Takes null for a field's empty value, as Go does, whose programs make and run images.

    In a list or map null is an empty text. A tuple is of what must be there: its reader refuses a null.
    """

    def __post_init__(self) -> None:
        for name, default in zip(reversed(self.__struct_fields__), reversed(self.__struct_defaults__), strict=False):
            value = getattr(self, name)
            if value is None and default is not None:
                msgspec.structs.force_setattr(self, name, default)
            elif isinstance(value, list):
                value[:] = ["" if one is None else one for one in value]
            elif isinstance(value, dict):
                value.update({key: "" for key, one in value.items() if one is None})


class Platform(_Document, frozen=True):
    """The platform of a manifest in an index."""

    architecture: Text = ""
    os: Text = ""
    variant: Text = ""


class Descriptor(_Document, frozen=True, rename="camel"):
    """A reference to a blob."""

    digest: str
    size: int
    media_type: Text = ""
    platform: Platform | None = None
    annotations: TextMap | None = None


if TYPE_CHECKING:
    Descriptors = tuple[Descriptor, ...]
else:
    Descriptors = tuple[Descriptor | None, ...] | None


class Index(_Document, frozen=True):
    """Manifests for several platforms, or the images of a layout."""

    manifests: Descriptors = ()

    def __post_init__(self) -> None:
        """Leave out null: it is no image, and others may be for this machine."""
        super().__post_init__()
        msgspec.structs.force_setattr(self, "manifests", tuple(one for one in self.manifests if one is not None))


class Manifest(_Document, frozen=True):
    """The configuration and layers of one image."""

    config: Descriptor
    layers: Descriptors = ()


class Execution(_Document, frozen=True):
    """The default process of an image's containers."""

    user: Text = msgspec.field(default="", name="User")
    env: TextList | None = msgspec.field(default=None, name="Env")
    entrypoint: TextList | None = msgspec.field(default=None, name="Entrypoint")
    cmd: TextList | None = msgspec.field(default=None, name="Cmd")
    working_dir: Text = msgspec.field(default="", name="WorkingDir")
    stop_signal: Text = msgspec.field(default="", name="StopSignal")
    labels: TextMap | None = msgspec.field(default=None, name="Labels")
    volumes: dict[str, Any] | None = msgspec.field(default=None, name="Volumes")
    """Its VOLUMEs: any text that should be a path in the container, with a value that has no meaning."""

    def __post_init__(self) -> None:
        """Leave out variables without a name, as containerd does."""
        super().__post_init__()
        if self.env:
            self.env[:] = [one for one in self.env if one]


class RootFs(_Document, frozen=True):
    """Digests of the uncompressed layers."""

    diff_ids: Digests = ()


class Config(_Document, frozen=True):
    """An image's configuration."""

    rootfs: RootFs = RootFs()
    config: Execution | None = None
    architecture: Text = ""
    os: Text = ""


class _Kind(_Document, frozen=True, rename="camel"):
    """Fields that tell an index from a manifest: both specifications only recommend the media type."""

    schema_version: int = 0
    media_type: Text = ""
    manifests: msgspec.Raw = msgspec.Raw(b"")
    layers: msgspec.Raw = msgspec.Raw(b"")


def parse(content: bytes) -> Index | Manifest:
    """Parse an index or a manifest. Raises BadImage."""
    kind = _decode(content, _Kind, "manifest")
    if kind.schema_version != 2:
        raise BadImage(f"cannot use a manifest of schema {kind.schema_version}: only 2 is supported")
    if kind.media_type in INDEXES or (not kind.media_type and bytes(kind.manifests) and not bytes(kind.layers)):
        return _decode(content, Index, "index")  # an entry for another machine may have another kind of digest
    manifest = _decode(content, Manifest, "manifest")
    _refuse_null(manifest.layers, "its manifest has null in place of a descriptor at layers")
    for one in (manifest.config, *manifest.layers):
        _check(one)
    return manifest


def parse_config(content: bytes, layers: int) -> Config:
    """Parse the configuration of an image with this number of layers. Raises BadImage."""
    config = _decode(content, Config, "configuration")
    if len(config.rootfs.diff_ids) != layers:
        raise BadImage(f"its configuration names {len(config.rootfs.diff_ids)} layers, its manifest {layers}")
    _refuse_null(config.rootfs.diff_ids, "its configuration has null in place of a digest at rootfs.diff_ids")
    for digest in config.rootfs.diff_ids:
        checked_digest(digest)
    if config.os and (config.os, config.architecture) != ("linux", ARCHITECTURE):
        raise BadImage(f"it is for {config.os}/{config.architecture}, and this machine is linux/{ARCHITECTURE}")
    return config


def for_this_machine(index: Index) -> Descriptor:
    """The manifest, or inner index, for this machine; the first one of the best variant. Raises BadImage."""
    images = [one for one in index.manifests if one.media_type in (*MANIFESTS, *INDEXES, "")]
    offered = {
        one.platform.variant.lower().removeprefix("v"): one
        for one in reversed(images)
        if one.platform and (one.platform.os, one.platform.architecture) == ("linux", ARCHITECTURE)
    }
    for variant in _VARIANTS.get(ARCHITECTURE, ("",)):
        if variant in offered:
            return offered[variant]
    if any_machine := [one for one in images if one.platform is None]:
        return any_machine[0]
    others = ", ".join(f"v{variant}" for variant in sorted(offered))[:200]
    but = f": its variants {others} are for newer CPUs" if others else ""
    raise BadImage(f"it has no image for linux/{ARCHITECTURE}{but}")


def chain_ids(diff_ids: tuple[str, ...]) -> list[str]:
    """An ID for each layer together with those below it (image-spec, config.md, Layer ChainID)."""
    chain: list[str] = []
    for diff_id in diff_ids:
        text = f"{chain[-1]} {diff_id}" if chain else ""
        chain.append(f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" if text else diff_id)
    return chain


def _refuse_null(found: tuple[object, ...], what: str) -> None:
    if None in found:
        raise BadImage(f"{what}[{found.index(None)}]")


def _check(descriptor: Descriptor) -> None:
    checked_digest(descriptor.digest)
    if descriptor.size < 0:
        raise BadImage(f"a blob of {descriptor.size} bytes")


def _decode(content: bytes, kind: type[T], what: str) -> T:
    try:
        return untrusted.decode_json(content, kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadImage(f"its {what} cannot be read: {error}") from error
