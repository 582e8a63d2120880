"""Container images made from the machine's static busybox, as OCI archives. The same input gives the same bytes.

The layout: https://github.com/opencontainers/image-spec/blob/main/image-layout.md. No layer is compressed: they go to a
containerd on this machine only.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.containerd.requirements import BUSYBOX_BINARY

BUSYBOX = "docker.io/library/busybox:latest"
PAUSE = "registry.k8s.io/pause:3.10"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PASSWD = "root:x:0:0:root:/:/bin/sh\napp:x:1000:1000:app:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
_GROUP = "root:x:0:\napp:x:1000:\nnobody:x:65534:\n"


@dataclass(frozen=True)
class Image:
    """An image to build: busybox with all its applets, and what is given here."""

    name: str
    """Full reference, with registry and tag."""
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ("sh",)
    user: str = ""
    """UID, or a name from /etc/passwd: root, app (1000), nobody (65534)."""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files by absolute path, in a layer of their own, which gives an image a size and an ID of its own."""
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = ""
    """What ends a container of it, SIGTERM when empty."""


def busybox() -> Image:
    """The image most tests run: a shell, httpd, nc, wget."""
    return Image(BUSYBOX)


def pause() -> Image:
    """The sandbox image: one sleeping process of 60 kB of its own.

    As the first process of its pod it ignores SIGTERM, which does not matter: containerd kills sandboxes. Unlike the
    real pause it does not reap orphans, which only shows in pods that share their process namespace.
    """
    return Image(PAUSE, entrypoint=("/bin/sleep", "2147483647"), cmd=())


def write_archive(path: Path, images: Iterable[Image]) -> None:
    """Write `images` into one OCI archive that `ctr images import` takes."""
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
    layers = [_base_layer()] + ([_files_layer(image.files)] if image.files else [])
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
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _blob(blobs, _json(config), "application/vnd.oci.image.config.v1+json"),
        "layers": [_blob(blobs, layer, "application/vnd.oci.image.layer.v1.tar") for layer in layers],
    }
    return _blob(blobs, _json(manifest), "application/vnd.oci.image.manifest.v1+json")


def _blob(blobs: dict[str, bytes], content: bytes, media_type: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _base_layer() -> bytes:
    """Build the file system all images start from: busybox, a link for each applet, /etc, /tmp and mount points."""
    applets = subprocess.run([BUSYBOX_BINARY, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory in ("bin", "dev", "etc", "proc", "root", "run", "sys", "var", "var/www"):
            _add_directory(tar, directory, 0o755)
        _add_directory(tar, "tmp", 0o1777)
        _add(tar, "bin/busybox", BUSYBOX_BINARY.read_bytes(), 0o755)
        for applet in sorted(set(applets) - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        _add(tar, "etc/passwd", _PASSWD.encode())
        _add(tar, "etc/group", _GROUP.encode())
    return buffer.getvalue()


def _files_layer(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(files):
            _add(tar, path.lstrip("/"), files[path], 0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)  # owner root and time 0: nothing of this machine or moment gets into the digests
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _add_directory(tar: tarfile.TarFile, name: str, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    tar.addfile(info)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
