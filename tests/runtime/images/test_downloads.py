"""Downloads of layers that cannot end well: bodies that are too short, and disks without room."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.runtime.images import limits
from actors.runtime.images.errors import RegistryError, StoreFull
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.sources import client, partial
from actors.runtime.images.sources.client import Credentials
from actors.runtime.images.sources.hosts import Host
from actors.runtime.images.sources.mirrors import Mirrored
from actors.runtime.images.sources.progress import Pull
from actors.runtime.images.sources.source import add_image
from actors.runtime.model.errors import RpcError
from actors.runtime.service.image_service import ImageService
from proto.cri import api_pb2 as pb
from tests.runtime.images.test_registry import FakeRegistry, pull

SHORT = 500


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    monkeypatch.setattr(client, "BETWEEN_S", 0.01)
    return ImageStore(tmp_path / "store", Limits(reserve_bytes=0))


@pytest.fixture
def fakes() -> Iterator[tuple[FakeRegistry, FakeRegistry]]:
    """A mirror and the registry, with the same image."""
    with ExitStack() as stack:
        mirror, own = (stack.enter_context(closing(FakeRegistry())) for _ in range(2))
        own.made, own.digest = mirror.made, mirror.digest
        yield mirror, own


def layer_of(fake: FakeRegistry) -> str:
    return str(fake.made.layers[0]["digest"])


def shortened(fake: FakeRegistry, how: str) -> Callable[[Any], bool]:
    """Answers with the layer's first bytes, as a whole body. It ends a client that would ask for ever."""
    asked = iter(range(30))

    def answer(request: Any) -> bool:
        if layer_of(fake) not in request.path:
            return False
        if next(asked, None) is None:
            fake.say(request, 403, b"{}")  # ends the test of a client that would ask for ever
            return True
        content = (fake.content(request.path.partition("?")[0]) or b"")[:SHORT]
        if how == "captive page":
            content = b"<html>" + b"x" * SHORT
        if how == "empty rest" and "Range" in request.headers:
            fake.say(request, 206, b"")
        else:
            fake.say(request, 200, content)
        return True

    return answer


@pytest.mark.parametrize("how", ["ignores Range", "empty rest"])
def test_blob_shorter_than_its_size_ends_the_pull(
    fakes: tuple[FakeRegistry, FakeRegistry], store: ImageStore, how: str
) -> None:
    own = fakes[1]
    own.answer = shortened(own, how)
    with pytest.raises(RegistryError, match=rf"cannot download a layer .*it gives {SHORT} of \d+ bytes"):
        pull(store, own)
    asked = [path for path, _ in own.seen if layer_of(own) in path]
    assert len(asked) == client.ATTEMPTS + 1  # the first one made progress


@pytest.mark.parametrize("how", ["ignores Range", "empty rest", "captive page"])
def test_short_blob_of_a_mirror_is_taken_from_the_registry(
    fakes: tuple[FakeRegistry, FakeRegistry], store: ImageStore, how: str
) -> None:
    mirror, own = fakes
    mirror.content = lambda path: FakeRegistry.content(mirror, path.partition("?")[0])  # type: ignore[method-assign]
    mirror.answer = shortened(mirror, how)
    name = f"{own.host}/team/app:1"
    hosts = (Host(f"http://{mirror.host}/v2"), Host(f"http://{own.host}/v2", registry=True))
    source = Mirrored(store, name, Credentials(), hosts, Pull(name))
    assert add_image(store, source, name, source.resolve()).layers
    assert own.ranges()[0].startswith("bytes=5")
    assert list(store.partial_dir.iterdir()) == []


# Disks without room


def test_blob_that_does_not_fit_is_refused_at_once(
    fakes: tuple[FakeRegistry, FakeRegistry], store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = fakes[1]
    monkeypatch.setattr(limits.os, "statvfs", lambda _: SimpleNamespace(f_bavail=100, f_frsize=4096))
    store.partial(layer_of(own)).write_bytes(own.made.blobs[layer_of(own)][:70_000])
    with pytest.raises(StoreFull, match="bytes are needed, 409600 are free"):
        pull(store, own)
    assert not [path for path, _ in own.seen if layer_of(own) in path]
    assert list(store.partial_dir.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_download_that_fills_the_disk_is_removed(
    fakes: tuple[FakeRegistry, FakeRegistry], store: ImageStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    own = fakes[1]
    append = client.Registry._append

    def filling(self: client.Registry, url: str, path: Path, *rest: Any) -> None:
        append(self, url, path, *rest)
        os.truncate(path, 1000)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(client.Registry, "_append", filling)
    with pytest.raises(StoreFull, match="no room"):
        pull(store, own)
    assert list(store.partial_dir.iterdir()) == []
    monkeypatch.setattr(client.Registry, "_append", append)
    assert pull(store, own).id


def service(store: ImageStore) -> ImageService:
    engine: Any = SimpleNamespace(store=store)
    stats: Any = None
    return ImageService(engine, stats, store.root / "none", "")


def old(path: Path) -> Path:
    path.write_bytes(b"some")
    os.utime(path, (time.time() - 2 * partial.KEPT_S,) * 2)
    return path


def test_old_downloads_are_removed_at_start_and_by_pulls(
    fakes: tuple[FakeRegistry, FakeRegistry], store: ImageStore
) -> None:
    kept = store.partial("sha256:" + "1" * 64)
    kept.write_bytes(b"recent")
    first = old(store.partial("sha256:" + "0" * 64))
    own_file = store.partial("sha256:" + "2" * 64).with_suffix(".0123")
    own_file.write_bytes(b"of one pull, which a kill ended")
    images = service(store)
    assert list(store.partial_dir.iterdir()) == [kept]
    old(first)
    request = pb.PullImageRequest(image=pb.ImageSpec(image=f"{fakes[1].host}/team/app:none"))
    with pytest.raises(RpcError, match="not found"):
        images.PullImage(request, lambda _: True)
    assert list(store.partial_dir.iterdir()) == [kept]


def test_pull_without_room_removes_other_unfinished_downloads(
    fakes: tuple[FakeRegistry, FakeRegistry], store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = service(store)
    store.partial("sha256:" + "1" * 64).write_bytes(bytes(1 << 20))
    monkeypatch.setattr(limits.os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4096))
    request = pb.PullImageRequest(image=pb.ImageSpec(image=f"{fakes[1].host}/team/app:1"))
    with pytest.raises(RpcError) as told:
        images.PullImage(request, lambda _: True)
    assert told.value.code == "RESOURCE_EXHAUSTED"
    assert list(store.partial_dir.iterdir()) == []


def test_claimed_size_removes_no_download_that_would_not_help(store: ImageStore, tmp_path: Path) -> None:
    store.partial("sha256:" + "1" * 64).write_bytes(b"recent")
    assert partial.unused_bytes(store.partial_dir) == 6
    with pytest.raises(StoreFull) as told:
        limits.check_room_for(1 << 62, str(tmp_path), 0)
    assert told.value.missing_bytes > 6


def test_file_of_a_running_download_is_not_removed(store: ImageStore) -> None:
    path = store.partial("sha256:" + "0" * 64)
    begun, goes_on = threading.Event(), threading.Event()

    def download(own: Path) -> None:
        old(own)
        begun.set()
        assert goes_on.wait(20)

    def work() -> None:
        with partial.downloaded(path, download, Pull("app")) as file:
            content.append(file.read())

    content: list[bytes] = []
    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(20)
    partial.clear(store.partial_dir)
    partial.clear(store.partial_dir, kept_s=0)
    assert path.exists()
    goes_on.set()
    thread.join(20)
    assert content == [b"some"]
    old(path)
    partial.clear(store.partial_dir)
    assert not path.exists()
