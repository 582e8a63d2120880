"""Images of as many layers as overlayfs takes are mounted, as root file systems and as volumes."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from actors._host.files import mounts
from actors.runtime.filesystems.rootfs import RootFs
from actors.runtime.images.errors import BadImage
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.sources.layout import import_all
from tests.harness import unmount
from tests.runtime.images.build import Made, entry, tar

MOST = Limits().layers


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that overlayfs takes for its writable layer."""
    path = tmp_path / "disk"
    path.mkdir()
    mounts.mount("tmpfs", str(path), "tmpfs", "size=64m")
    try:
        yield path
    finally:
        unmount(path)


def made(layers: int) -> Made:
    """Each layer has a file of its own, and replaces one of the layer below."""
    return Made(*(tar(entry(f"f{one}", b""), entry("last", b"%d" % one)) for one in range(layers)))


@pytest.mark.needs("mounts")
def test_image_of_the_most_layers_is_mounted(disk: Path) -> None:
    store = ImageStore(disk / "store", Limits(reserve_bytes=0), durable=False)
    (image,) = import_all(store, made(MOST).write(disk / "layout"))
    rootfs, root, volume = RootFs(store, overlay=True), disk / "root", disk / "volume"
    before = set(os.listdir("/proc/self/fd"))
    try:
        rootfs.prepare(image.layers, disk / "own", root)
        rootfs.prepare_read_only(image.layers, volume)
        (root / "f0").unlink()
        for place in (root, volume):
            assert (place / "last").read_text() == str(MOST - 1)
        assert len(os.listdir(root)) == MOST
        assert len(os.listdir(volume)) == MOST + 1
        assert set(os.listdir("/proc/self/fd")) <= before
    finally:
        rootfs.remove(root)
        rootfs.remove_read_only(volume)


@pytest.mark.needs("mounts")
def test_mounts_of_many_layers_at_once_leave_descriptors_to_others(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ImageStore(disk / "store", Limits(reserve_bytes=0), durable=False)
    (image,) = import_all(store, made(MOST).write(disk / "layout"))
    rootfs, volumes = RootFs(store, overlay=True), [disk / f"volume-{number}" for number in range(4)]
    mount, opened = mounts.mount, []

    def slow(*arguments: Any) -> None:
        opened.append(len(os.listdir("/proc/self/fd")))
        time.sleep(0.1)
        mount(*arguments)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(mounts, "mount", slow)
    try:
        with ThreadPoolExecutor(len(volumes)) as pool:
            list(pool.map(rootfs.prepare_read_only, [image.layers] * len(volumes), volumes))
        assert len(opened) == len(volumes)
        assert MOST <= max(opened) - before < 2 * MOST
    finally:
        for volume in volumes:
            rootfs.remove_read_only(volume)


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_volume_of_few_layers_is_mounted(disk: Path, layers: int) -> None:
    store = ImageStore(disk / "store", Limits(reserve_bytes=0), durable=False)
    (image,) = import_all(store, made(layers).write(disk / "layout"))
    rootfs, volume = RootFs(store, overlay=True), disk / "volume"
    try:
        rootfs.prepare_read_only(image.layers, volume)
        assert len(os.listdir(volume)) == (layers + 1 if layers else 0)
    finally:
        rootfs.remove_read_only(volume)


def test_image_of_more_layers_is_refused_before_their_download(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store", Limits(reserve_bytes=0))
    layout = made(MOST + 1).write(tmp_path / "layout")
    with pytest.raises(BadImage, match=f"it has {MOST + 1} layers; at most {MOST} are allowed"):
        import_all(store, layout)
    assert os.listdir(store.layers_dir) == []
