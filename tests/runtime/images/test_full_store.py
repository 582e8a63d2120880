"""Images are removed from a full disk, which then has room again."""

import contextlib
import errno
import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors._host.files import mounts
from actors._host.files.mounts import MS_REMOUNT
from actors.runtime.images import limits
from actors.runtime.images.errors import StoreFull
from actors.runtime.images.limits import Budget, Limits
from actors.runtime.images.local.store import Image, ImageStore
from actors.runtime.images.sources.layout import import_all
from tests.harness import unmount
from tests.runtime.images.build import Made, entry, tar

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
        unmount(path)


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
def test_pull_leaves_inodes_for_others(disk: Path, tmp_path: Path) -> None:
    mounts.mount("tmpfs", str(disk), "tmpfs", "nr_inodes=30k,size=200m", MS_REMOUNT)
    reserve = os.statvfs(disk).f_files // 40
    free: list[int] = []

    class Watched(Budget):
        def entry(self) -> None:
            free.append(os.statvfs(disk).f_favail)
            super().entry()

    store = ImageStore(disk / "store", Limits(reserve_bytes=0))
    layer = tar(*(entry(f"f{number}", b"") for number in range(31_000)))
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    budget = Watched(store.limits, str(store.root))
    with store.lease() as lease, pytest.raises(StoreFull, match=rf"inodes are free .*; {reserve} must stay free"):
        store.add_layer(digest, digest, (), io.BytesIO(layer), budget, lease)
    assert min(free) > reserve / 2
    assert os.listdir(store.incoming) == []


@pytest.mark.parametrize(
    ("files", "free", "refused"),
    [
        pytest.param(100_000, 4_900, False, id="evictions begin before"),
        pytest.param(100_000, 2_400, True, id="small"),
        pytest.param(10_000_000, 10_100, False, id="large"),
        pytest.param(10_000_000, 9_900, True, id="large and full"),
        pytest.param(0, 0, False, id="no number, as of btrfs"),
    ],
)
def test_inodes_that_must_stay_free(monkeypatch: pytest.MonkeyPatch, files: int, free: int, refused: bool) -> None:
    system = SimpleNamespace(f_bavail=1 << 30, f_frsize=4096, f_files=files, f_favail=free)
    monkeypatch.setattr(limits, "os", SimpleNamespace(statvfs=lambda _: system))
    with pytest.raises(StoreFull, match=f"{free} inodes are free") if refused else contextlib.nullcontext():
        limits.check_room("/", Limits())


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
