"""Container images made from this machine's own programs, as OCI archives. The same input gives the same bytes.

The layout: https://github.com/opencontainers/image-spec/blob/main/image-layout.md. No layer is compressed: they go to a
containerd on this machine only.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.containerd import layers, machine

BUSYBOX = "docker.io/library/busybox:latest"
PYTHON = "docker.io/library/python:3-slim"
PAUSE = "registry.k8s.io/pause:3.10"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """An image to build: a shell with tools (busybox, else the machine's own), and what is given here."""

    name: str
    """Full reference, with registry and tag."""
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ("sh",)
    user: str = ""
    """UID, or a name from /etc/passwd: root, app (1000), nobody (65534)."""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files by absolute path, in a layer of their own, which gives an image a size and an ID of its own."""
    setuid: Mapping[str, bytes] = field(default_factory=dict)
    """The same of programs that run as root, as any user."""
    programs: Mapping[str, Path] = field(default_factory=dict)
    """Further programs of this machine, by their names in /bin."""
    labels: Mapping[str, str] = field(default_factory=dict)
    tools: bool = False
    """With the machine's own tools even where it has busybox."""
    python: bool = False
    """With the machine's Python, which runs there as it does here."""
    stop_signal: str = ""
    """The stop signal of its containers; SIGTERM when empty."""
    volumes: Sequence[str] = ()
    """Its VOLUMEs."""


def busybox() -> Image:
    """The image of most samples and tests: a shell and tools. Of busybox itself, also httpd, nc and wget."""
    return Image(BUSYBOX)


def python() -> Image:
    """The image of samples and tests that need a server."""
    return Image(PYTHON, cmd=("python3",), python=True)


def pause() -> Image:
    """The sandbox image: one sleeping process.

    As the first process of its pod it ignores SIGTERM, which does not matter: containerd kills sandboxes. Unlike the
    real pause it does not reap orphans, which only shows in pods that share their process namespace.
    """
    return Image(PAUSE, entrypoint=("/bin/sleep", "2147483647"), cmd=())


def made_of(image: Image) -> str:
    """Describe the parts of this machine in an image."""
    busybox = _busybox_of(image)
    shell = str(busybox) if busybox is not None else "this machine's shell and tools"
    return f"{shell} and {machine.python_program()}" if image.python else shell


def write_archive(path: Path, images: Iterable[Image]) -> None:
    """Write `images` into one OCI archive that `ctr images import` takes. Raises machine.CannotBuild."""
    blobs: dict[str, bytes] = {}
    manifests = []
    for image in images:
        manifest = _manifest(image, blobs)
        manifests.append({**manifest, "annotations": {"io.containerd.image.name": image.name}})
    files = {f"blobs/sha256/{digest}": content for digest, content in blobs.items()}
    files["index.json"] = _json({"schemaVersion": 2, "manifests": manifests})
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    with tarfile.open(path, "w") as archive:
        for name in sorted(files):
            _add(archive, name, files[name])


def image_blobs(image: Image) -> tuple[str, dict[str, bytes]]:
    """The digest of an image's manifest, and every blob of it by digest: what a registry serves. Without `sha256:`."""
    blobs: dict[str, bytes] = {}
    manifest = _manifest(image, blobs)
    return str(manifest["digest"]).removeprefix("sha256:"), blobs


def _manifest(image: Image, blobs: dict[str, bytes]) -> dict[str, object]:
    """Put the image's blobs into `blobs`; its manifest's descriptor."""
    tars = [layers.shell(_busybox_of(image))]
    tars += [layers.python()] if image.python else []
    tars += [layers.of_files(image.files)] if image.files else []
    tars += [layers.of_programs(image.programs)] if image.programs else []
    tars += [layers.of_files(image.setuid, 0o6755)] if image.setuid else []
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Env": ["PATH=/bin", *(f"{name}={value}" for name, value in sorted(image.env.items()))],
            "Entrypoint": list(image.entrypoint),
            "Cmd": list(image.cmd),
            "User": image.user,
            "Labels": dict(image.labels),
            **({"StopSignal": image.stop_signal} if image.stop_signal else {}),
            **({"Volumes": {path: {} for path in image.volumes}} if image.volumes else {}),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _blob(blobs, _json(config), "application/vnd.oci.image.config.v1+json"),
        "layers": [_blob(blobs, tar, "application/vnd.oci.image.layer.v1.tar") for tar in tars],
    }
    return _blob(blobs, _json(manifest), "application/vnd.oci.image.manifest.v1+json")


def _busybox_of(image: Image) -> Path | None:
    return None if image.tools else machine.busybox_program()


def _blob(blobs: dict[str, bytes], content: bytes, media_type: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)  # owner root and time 0: nothing of this machine or moment gets into the digests
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
