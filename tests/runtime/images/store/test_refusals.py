"""Malformed and oversized images are refused, and leave nothing in the store."""

import contextlib
import json
from pathlib import Path
from typing import IO

import pytest

from actors.runtime.images.errors import BadImage, ImageError, StoreFull
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.manifest import INDEXES, Descriptor
from actors.runtime.images.sources.layout import import_all
from actors.runtime.images.sources.source import add_image
from tests.runtime.images.build import NAME, Made, entry, tar
from tests.runtime.images.store.content import BASE, TOP, consistent, spoiled


@pytest.mark.parametrize(
    "how",
    [
        "diff id",
        "layers",
        "digest",
        "path in a digest",
        "missing blob",
        "architecture",
        "changed layer",
        "broken gzip",
        "broken zstd",
    ],
)
def test_bad_image_is_refused_and_leaves_nothing(store: ImageStore, tmp_path: Path, how: str) -> None:
    layout = spoiled(how).write(tmp_path / "layout")
    with pytest.raises(BadImage):
        import_all(store, layout)
    assert store.list() == []
    consistent(store)


def test_manifest_with_another_digest_is_refused(store: ImageStore, tmp_path: Path) -> None:
    layout = Made(BASE).write(tmp_path / "layout")
    digest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"].removeprefix("sha256:")
    blob = layout / "blobs" / "sha256" / digest
    blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(BadImage, match="digest"):
        import_all(store, layout)


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"{",
        b"[]",
        b'{"schemaVersion": 1, "manifests": []}',
        b"[" * 100_000,
        json.dumps({"schemaVersion": 2, "manifests": [{"digest": "x", "size": 1}]}).encode(),
        json.dumps({"schemaVersion": 2, "manifests": []}).encode(),
        b" " * (5 * 1024 * 1024),
    ],
)
def test_invalid_index_is_refused(store: ImageStore, tmp_path: Path, index: bytes) -> None:
    layout = Made(BASE).write(tmp_path / "layout")
    (layout / "index.json").write_bytes(index)
    with pytest.raises(BadImage):
        import_all(store, layout)


def test_layout_with_a_link_as_blob_is_refused(store: ImageStore, tmp_path: Path) -> None:
    made = Made(BASE)
    layout = made.write(tmp_path / "layout")
    (blob,) = [layout / "blobs/sha256" / str(one["digest"]).removeprefix("sha256:") for one in made.layers]
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadImage):
        import_all(store, layout)


def test_a_layer_bomb_is_stopped_and_leaves_nothing(store: ImageStore, tmp_path: Path) -> None:
    bomb = tar(entry("zeros", bytes(3_000_000)))
    layout = Made(bomb, how="gzip").write(tmp_path / "layout")
    small = ImageStore(store.root, Limits(image_bytes=1_000_000, reserve_bytes=0))
    with pytest.raises(BadImage, match="1000000 bytes"):
        import_all(small, layout)
    consistent(small)
    padded = Made(TOP + bytes(5_000_000), how="gzip").write(tmp_path / "padded")
    tiny = ImageStore(store.root, Limits(image_bytes=1_000_000, image_entries=10, reserve_bytes=0))
    with pytest.raises(BadImage, match="decompresses"):
        import_all(tiny, padded)


def test_layers_share_the_limit_of_decompressed_bytes(store: ImageStore, tmp_path: Path) -> None:
    limits = Limits(image_bytes=1_000_000, image_entries=10, reserve_bytes=0)
    layers = [tar(entry("f", b"%d" % number)) + bytes(400_000) for number in range(3)]
    (image,) = import_all(ImageStore(tmp_path / "two", limits), Made(*layers[:2], how="zstd").write(tmp_path / "fits"))
    assert len(image.layers) == 2
    with pytest.raises(BadImage, match="decompresses to more than an image may have"):
        import_all(ImageStore(store.root, limits), Made(*layers, how="zstd").write(tmp_path / "layout"))
    consistent(store)


def test_a_full_disk_leaves_nothing(store: ImageStore, tmp_path: Path) -> None:
    full = ImageStore(store.root, Limits(reserve_bytes=1 << 62))
    with pytest.raises(StoreFull):
        import_all(full, Made(BASE).write(tmp_path / "layout"))
    consistent(full)


def test_invalid_archive_is_refused(store: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "no.tar").write_bytes(b"no" * 1000)
    with pytest.raises(ImageError):
        import_all(store, tmp_path / "no.tar")


def test_deeply_nested_indexes_are_refused_with_their_number(store: ImageStore) -> None:
    made = Made(BASE)
    described = made.described()
    for _ in range(3):
        content = json.dumps({"schemaVersion": 2, "mediaType": INDEXES[0], "manifests": [described]}).encode()
        described = made.blob(content, mediaType=INDEXES[0])

    class Nested:
        def document(self, descriptor: Descriptor, _: int) -> bytes:
            return made.blobs[descriptor.digest]

        def blob(self, descriptor: Descriptor) -> contextlib.AbstractContextManager[IO[bytes]]:
            raise AssertionError(descriptor)

    outer = Descriptor(digest=described["digest"], size=described["size"], media_type=INDEXES[0])
    with pytest.raises(BadImage, match="indexes nested 3 deep"):
        add_image(store, Nested(), NAME, outer)
