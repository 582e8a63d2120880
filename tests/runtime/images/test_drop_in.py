"""The directory of archives and layouts that are imported: links without a target, and imports that fail for a time."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from actors.runtime.images.errors import NoSuchImage, RegistryError, StoreFull
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.sources import layout, mirrors
from actors.runtime.model.errors import RpcError
from actors.runtime.service import image_service
from actors.runtime.service.image_service import ImageService
from proto.cri import api_pb2 as pb
from tests.runtime.images.build import NAME, Made, entry, tar


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store", Limits(reserve_bytes=0))


@pytest.fixture
def drop_in(tmp_path: Path) -> Path:
    path = tmp_path / "drop"
    path.mkdir()
    return path


@pytest.fixture
def images(store: ImageStore, drop_in: Path) -> ImageService:
    engine: Any = SimpleNamespace(store=store)
    stats: Any = None
    return ImageService(engine, stats, drop_in, "")


def found(images: ImageService) -> bool:
    return images.ImageStatus(pb.ImageStatusRequest(image=pb.ImageSpec(image=NAME))).HasField("image")


@pytest.mark.parametrize("name", [".#app.tar", "app.tar"])
def test_dangling_link_blocks_no_import(images: ImageService, drop_in: Path, name: str) -> None:
    (drop_in / name).symlink_to("user@host.1234")  # Emacs' lock, or an archive that is gone
    assert not found(images)
    Made(tar(entry("file", b"x"))).write_archive(drop_in / "whole.tar")
    assert found(images)


@pytest.mark.parametrize("error", [StoreFull("no room"), OSError(errno.EIO, os.strerror(errno.EIO))])
def test_import_that_failed_for_a_time_is_tried_again(
    images: ImageService, drop_in: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    Made(tar(entry("file", b"x"))).write_archive(drop_in / "app.tar")

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(image_service, "import_all", fail)
    assert not found(images)
    monkeypatch.setattr(image_service, "import_all", layout.import_all)
    assert not found(images), "each look would unpack it again"
    monkeypatch.setattr(image_service, "IMPORT_RETRY_S", 0.0)
    assert found(images)


@pytest.mark.parametrize("goes", [False, True])
@pytest.mark.parametrize("error", [RegistryError("cannot reach registry"), NoSuchImage("not found")])
def test_failed_pull_names_the_import_that_failed(
    images: ImageService, drop_in: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, goes: bool
) -> None:
    for name in ("app.tar", "other.tar"):
        (drop_in / name).touch()
    monkeypatch.setattr(image_service, "import_all", Mock(side_effect=StoreFull("no room for it")))
    monkeypatch.setattr(image_service, "add_image", Mock(side_effect=error))
    monkeypatch.setattr(mirrors, "Mirrored", Mock())
    assert pull_error(images) == (
        f"failed to pull image {NAME!r}: {error}; cannot import {drop_in}/app.tar: no room for it, and 1 more"
    )
    (drop_in / "app.tar").unlink()
    assert pull_error(images).endswith(f"; cannot import {drop_in}/other.tar: no room for it")
    if goes:
        drop_in.rename(drop_in.with_name("away"))
    else:
        (drop_in / "other.tar").unlink()
    assert pull_error(images) == f"failed to pull image {NAME!r}: {error}"


def pull_error(images: ImageService) -> str:
    with pytest.raises(RpcError) as raised:
        images.PullImage(pb.PullImageRequest(image=pb.ImageSpec(image=NAME)), lambda _: None)
    return str(raised.value)


def test_bad_archive_is_tried_once(images: ImageService, drop_in: Path, caplog: pytest.LogCaptureFixture) -> None:
    (drop_in / "app.tar").write_bytes(b"no archive")
    assert [found(images) for _ in range(3)] == [False] * 3
    assert len([record for record in caplog.records if "cannot import" in record.message]) == 1
