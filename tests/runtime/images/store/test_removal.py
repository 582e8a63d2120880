"""A layer is removed with the last image and the last container that use it."""

import errno
import os
from pathlib import Path

import pytest

from actors._host.files import trees
from actors.runtime.images.errors import BadImage
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.sources.layout import import_all
from tests.runtime.images.build import NAME, Made
from tests.runtime.images.store.content import BASE, TOP, consistent, layers_of, spoiled


def test_shared_layers_are_removed_with_the_last_image(store: ImageStore, tmp_path: Path) -> None:
    import_all(store, Made(BASE, TOP, name="a.test/both:1").write(tmp_path / "one"))
    import_all(store, Made(BASE, name="a.test/base:1").write(tmp_path / "two"))
    assert len(layers_of(store)) == 2
    store.remove("a.test/both:1")
    assert len(layers_of(store)) == 1
    store.remove("a.test/both:1")  # idempotent
    store.remove(store.get("a.test/base:1").id)
    assert layers_of(store) == set()
    consistent(store)


def test_containers_layers_outlive_a_removed_image(tmp_path: Path) -> None:
    used: list[str] = []
    store = ImageStore(tmp_path / "store", Limits(reserve_bytes=0), in_use=lambda: used)
    (image,) = import_all(store, Made(BASE).write(tmp_path / "layout"))
    used += image.layers
    store.remove(NAME)
    assert store.find(NAME) is None
    assert layers_of(store) == set(image.layers)
    used.clear()
    store.collect()
    assert layers_of(store) == set()


def test_image_goes_whole_however_long_it_takes(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_MOST_S", 0.0)
    import_all(store, Made(BASE, TOP).write(tmp_path / "layout"))
    store.remove(NAME)
    consistent(store)
    for _ in range(2):
        with pytest.raises(BadImage):
            import_all(store, spoiled("diff id").write(tmp_path / "spoiled"))
        consistent(store)


def test_what_a_removal_leaves_goes_later(store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_all(store, Made(BASE).write(tmp_path / "layout"))

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(trees, "remove", fails)
        store.remove(NAME)
        with pytest.raises(BadImage):
            import_all(store, spoiled("diff id").write(tmp_path / "spoiled"))
    assert len(os.listdir(store.incoming)) > 1
    store.clear_leftovers()
    consistent(store)


def test_use_of_images_leaves_out_what_is_being_removed(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_all(store, Made(BASE).write(tmp_path / "layout"))
    before, listdir = store.usage(), os.listdir
    assert before[0] > 0
    monkeypatch.setattr(os, "listdir", lambda path: [*listdir(path), "just-removed"])
    assert store.usage() == before
