"""Pulls and removals at the same time keep the store consistent, and a pull can be cancelled."""

import gzip
import hashlib
import io
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actors._host.files import trees
from actors.runtime.images.limits import Budget
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.sources.layout import import_all
from actors.runtime.images.sources.progress import Cancelled
from tests.runtime.images.build import NAME, Made, entry, tar
from tests.runtime.images.store.content import BASE, TOP, consistent, layers_of


def test_pull_that_reads_the_rest_of_a_layer_can_be_cancelled(store: ImageStore) -> None:
    layer, asked = tar(entry("f", b"x")) + bytes(8_000_000), itertools.count()
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"

    def leave() -> None:
        if os.path.exists(next(iter(store.incoming.glob("*/fs/f")), "")) and next(asked) > 10:
            raise Cancelled("no pod waits")

    budget = Budget(store.limits, str(store.root), leave)
    with store.lease() as lease, pytest.raises(Cancelled, match="no pod waits"):
        store.add_layer(digest, digest, (), io.BytesIO(gzip.compress(layer)), budget, lease)
    consistent(store)


def test_concurrent_pulls_of_one_image(store: ImageStore, tmp_path: Path) -> None:
    layout = Made(BASE, TOP, how="gzip").write(tmp_path / "layout")
    failures: list[BaseException] = []

    def pull() -> None:
        try:
            import_all(store, layout)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert len(store.list()) == 1
    consistent(store)


def test_removal_during_a_pull_keeps_needed_layers(store: ImageStore, tmp_path: Path) -> None:
    layout = Made(BASE, TOP).write(tmp_path / "layout")
    over = threading.Event()

    def remove() -> None:
        while not over.is_set():
            store.remove(NAME)

    thread = threading.Thread(target=remove)
    thread.start()
    for _ in range(20):
        import_all(store, layout)
    over.set()
    thread.join(30)
    import_all(store, layout)
    consistent(store)


def test_a_removal_keeps_no_other_image_waiting(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_all(store, Made(BASE).write(tmp_path / "layout"))
    (other,) = import_all(store, Made(TOP, name="registry.test/other:1").write(tmp_path / "other"))
    layout = Made(BASE, TOP, name="registry.test/third:1").write(tmp_path / "third")
    deleting, over, remove = threading.Event(), threading.Event(), trees.remove

    def slow(path: Path, *, dir_fd: int | None = None, most_s: float | None = None) -> None:
        if threading.current_thread().name == "removal":
            deleting.set()
            over.wait(60)
        remove(path, dir_fd=dir_fd, most_s=most_s)

    monkeypatch.setattr(trees, "remove", slow)
    thread = threading.Thread(target=store.remove, args=(NAME,), name="removal")
    thread.start()
    try:
        assert deleting.wait(60)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(store.find, "registry.test/other:1").result(60) == other
            (third,) = pool.submit(import_all, store, layout).result(60)
        store.clear_leftovers()
        assert len(os.listdir(store.incoming)) == 1, "it is another thread's"
    finally:
        over.set()
        thread.join()
    assert store.list() == sorted((other, third), key=lambda image: image.id)
    consistent(store)


def test_pull_that_waits_for_an_unpacked_layer_can_be_cancelled(store: ImageStore) -> None:
    digest = f"sha256:{hashlib.sha256(BASE).hexdigest()}"
    entered, over = threading.Event(), threading.Event()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            entered.set()
            over.wait(60)
            return super().read(size)

    def unpack() -> None:
        with store.lease() as lease:
            store.add_layer(digest, digest, (), Slow(BASE), Budget(store.limits, str(store.root)), lease)

    def leave() -> None:
        raise Cancelled("no pod waits")

    thread = threading.Thread(target=unpack)
    thread.start()
    try:
        assert entered.wait(20)
        budget = Budget(store.limits, str(store.root), leave)
        with store.lease() as lease, pytest.raises(Cancelled, match="no pod waits"):
            store.add_layer(digest, digest, (), io.BytesIO(BASE), budget, lease)
        assert layers_of(store) == set()
    finally:
        over.set()
        thread.join()
