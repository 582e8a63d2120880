"""Images are removed from a full disk, which then has room again."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._host.files import mounts
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import Image, ImageStore
from actors.runtime.images.sources.layout import import_all
from tests.runtime.build import Made, entry, tar

NAMES = ("registry.test/made:1", "registry.test/other:1")
FULL = os.strerror(errno.ENOSPC)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounts.mount("tmpfs", str(path), "tmpfs", "size=2m")
    try:
        yield path
    finally:
        mounts.unmount(str(path))


def added(disk: Path, content: Path, layers: tuple[bytes, bytes]) -> tuple[ImageStore, Image, Image]:
    store = ImageStore(disk / "store", Limits(reserve_bytes=0))
    for name, layer in zip(NAMES, layers, strict=True):
        import_all(store, Made(tar(entry("f", layer)), name=name).write(content / name.replace("/", "-")))
    return store, store.get(NAMES[0]), store.get(NAMES[1])


def fill(disk: Path) -> None:
    with pytest.raises(OSError, match=FULL):
        (disk / "other").write_bytes(bytes(4 << 20))
    assert os.statvfs(disk).f_bavail == 0


@pytest.mark.needs("mounts")
def test_image_is_removed_from_a_full_disk(disk: Path, tmp_path: Path) -> None:
    store, image, other = added(disk, tmp_path, (b"a" * 100_000, b"b" * 100_000))
    fill(disk)
    store.remove(image.id)
    assert store.list() == [other]
    assert {path.name for path in store.layers_dir.iterdir()} == set(other.layers)
    again = ImageStore(store.root)
    assert again.list() == [other]
    assert again.execution(other)


@pytest.mark.needs("mounts")
def test_removal_without_effect_on_a_full_disk_changes_nothing(disk: Path, tmp_path: Path) -> None:
    store, image, other = added(disk, tmp_path, (b"a" * 100_000, b"b" * 100_000))
    store.in_use = lambda: image.layers
    fill(disk)
    with pytest.raises(OSError, match=FULL):
        store.remove(image.id)
    for one in (store, ImageStore(store.root)):
        assert {found.id for found in one.list()} == {image.id, other.id}
        assert one.execution(image) == one.execution(other)
    (disk / "other").unlink()
    store.remove(image.id)
    assert store.list() == [other]
