"""Layers and bad images for the tests of the store, and what a consistent store has."""

import gzip
import os

from actors.runtime.images.local.store import ImageStore
from tests.runtime.images.build import Made, entry, tar

BASE = tar(entry("etc/os", b"base"), entry("bin/sh", b"shell", mode=0o755))
TOP = tar(entry("app", b"application"), entry("etc/.wh.os", b""))


def layers_of(store: ImageStore) -> set[str]:
    return set(os.listdir(store.layers_dir))


def consistent(store: ImageStore) -> None:
    """Require that the store has all layers and documents that images use, readable, and no others."""
    assert os.listdir(store.incoming) == []
    assert layers_of(store) == {layer for image in store.list() for layer in image.layers}
    for image in store.list():
        store.execution(image)
        assert sum(len(os.listdir(store.layers_dir / layer / "fs")) for layer in image.layers) > 0


def spoiled(how: str) -> Made:
    made = Made(BASE, TOP)
    if how == "diff id":
        made.config["rootfs"]["diff_ids"][1] = f"sha256:{'0' * 64}"
    elif how == "layers":
        made.layers.pop()
    elif how == "digest":
        made.layers[0]["digest"] = "md5:1234"
    elif how == "path in a digest":
        made.layers[0]["digest"] = f"sha256:../../{'0' * 58}"
    elif how == "missing blob":
        made.blobs.pop(made.layers[1]["digest"])
    elif how == "architecture":
        made.config["architecture"] = "vax"
    elif how == "changed layer":
        made.blobs[made.layers[1]["digest"]] = BASE
    elif how == "broken gzip":
        made.blobs[made.layers[1]["digest"]] = gzip.compress(TOP)[:-9]
    elif how == "broken zstd":
        made.blobs[made.layers[1]["digest"]] = b"\x28\xb5\x2f\xfd" + bytes(100)
    return made
