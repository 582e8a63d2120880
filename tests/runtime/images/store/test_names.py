"""An image is found by its tags, its digests, and its ID while a shortened one is unique."""

from pathlib import Path

import msgspec
import pytest

from actors.runtime.images.errors import NoSuchImage
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.manifest import Descriptor, Manifest
from actors.runtime.images.sources.layout import import_all
from tests.runtime.images.build import NAME, Made, entry, tar
from tests.runtime.images.store.content import BASE, TOP


def test_short_names_get_docker_io(store: ImageStore, tmp_path: Path) -> None:
    import_all(store, Made(BASE, name="docker.io/library/tool:latest").write(tmp_path / "layout"))
    assert store.find("tool") == store.find("tool:latest") == store.find("docker.io/tool") != None  # noqa: E711
    with pytest.raises(NoSuchImage):
        store.get("tool:other")


def test_tag_moves_and_image_is_removed_with_its_last_tag(store: ImageStore, tmp_path: Path) -> None:
    (first,) = import_all(store, Made(BASE).write(tmp_path / "one"))
    (second,) = import_all(store, Made(TOP).write(tmp_path / "two"))
    assert store.get(NAME).id == second.id
    assert store.get(first.id).tags == ()
    (again,) = import_all(store, Made(TOP, name="a.test/b:2").write(tmp_path / "three"))
    assert again.tags == (NAME, "a.test/b:2")
    store.remove(NAME)
    assert store.get("a.test/b:2").id == second.id
    store.remove("a.test/b:2")
    assert store.find(second.id) is None


def test_an_index_digest_names_the_image_committed_last(store: ImageStore, tmp_path: Path) -> None:
    """Another version of the agent, or another machine, may choose another image of an index."""
    for name, layer in (("first", BASE), ("second", TOP)):
        import_all(store, Made(layer, name=f"registry.test/{name}:1").write(tmp_path / name))
    images = [store.get("registry.test/first:1"), store.get("registry.test/second:1")]
    digest = "sha256:" + "1" * 64
    for image in images:
        manifest = Manifest(config=Descriptor(media_type="", digest=image.id, size=1), layers=())
        store.commit("registry.test/app:1", digest, image.manifest, manifest, image.layers)
    for name in ("registry.test/app:1", f"registry.test/app@{digest}"):
        assert store.get(name).id == images[1].id
    assert store.get(images[0].id).tags == ("registry.test/first:1",)
    assert sum(f"registry.test/app@{digest}" in one.digests for one in store.list()) == 1


def test_image_is_found_by_a_shortened_id_while_it_is_unique(store: ImageStore, tmp_path: Path) -> None:
    ids = []
    for number in range(20):
        made = Made(tar(entry("f", str(number).encode())), name=f"registry.test/made:{number}")
        ids += [one.id for one in import_all(store, made.write(tmp_path / str(number)))]
    for id_ in ids:
        image, digits = store.get(id_), id_.removeprefix("sha256:")
        assert [store.find(name) for name in (digits[:13], f"sha256:{digits[:13]}", digits[:63])] == [image] * 3
        assert store.find(digits[:2]) is None
    alike = [f"sha256:abc{number:061}" for number in range(2)]
    store._images = {id_: msgspec.structs.replace(store.get(ids[0]), id=id_) for id_ in alike}
    assert store.find("abc0000") is None, "several begin with it"


def test_name_of_hex_digits_goes_before_a_shortened_id(store: ImageStore, tmp_path: Path) -> None:
    (first,) = import_all(store, Made(BASE).write(tmp_path / "first"))
    digits = first.id.removeprefix("sha256:")[:12]
    named = Made(BASE, TOP, name=f"docker.io/library/{digits}:latest")
    (second,) = import_all(store, named.write(tmp_path / "second"))
    assert store.find(digits) == second
    assert store.find(f"sha256:{digits}") == first
    store.remove(digits)
    assert store.list() == [first]
    store.remove(digits)
    assert store.list() == [], "a shortened ID removes the image with its tags"
