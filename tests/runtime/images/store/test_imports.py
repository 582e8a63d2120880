"""The store imports layouts and archives, and takes this machine's image of several."""

import json
import os
from pathlib import Path

import pytest

from actors.runtime.images.errors import BadImage
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.manifest import MANIFESTS
from actors.runtime.images.sources.layout import import_all
from tests.runtime.images.build import NAME, Made, entry, tar
from tests.runtime.images.store.content import BASE, TOP, consistent


@pytest.mark.parametrize("how", ["", "gzip", "zstd"])
def test_a_layout_is_imported(store: ImageStore, tmp_path: Path, how: str) -> None:
    made = Made(BASE, TOP, how=how, config={"Cmd": ["sh"], "User": "app"})
    (image,) = import_all(store, made.write(tmp_path / "layout"))
    assert image.tags == (NAME,)
    assert store.execution(image).cmd == ["sh"]
    stack = store.stack(image.layers)
    assert stack.find("app") is not None
    assert stack.find("etc/os") is None
    assert store.get("registry.test/made:1") == store.get(image.id) == store.get(image.digests[0]) == image
    consistent(store)


def test_whiteouts_with_non_utf8_names_are_kept(store: ImageStore, tmp_path: Path) -> None:
    names = [os.fsdecode(name) for name in (b"gone-\xff", b"d-\xfe/.wh..wh..opq", b".wh.gone-\xff", b"d-\xfe/old")]
    below = tar(entry(names[0], b"x"), entry(names[3], b"x"))
    made = Made(below, tar(entry(names[2], b""), entry(names[1], b"")))
    (image,) = import_all(store, made.write(tmp_path / "layout"))
    again = ImageStore(store.root, Limits(reserve_bytes=0))
    stack = again.stack(image.layers)
    assert stack.find(names[0]) is None
    assert stack.find(names[3]) is None
    assert stack.find(os.fsdecode(b"d-\xfe")) is not None


def test_an_archive_is_imported_and_found_after_a_restart(store: ImageStore, tmp_path: Path) -> None:
    import_all(store, Made(BASE).write_archive(tmp_path / "image.tar"))
    again = ImageStore(store.root, Limits(reserve_bytes=0))
    again.clear_leftovers()
    assert again.list() == store.list() != []
    consistent(again)


def test_multi_platform_index_gives_this_machines_image(store: ImageStore, tmp_path: Path) -> None:
    made, other = Made(BASE), Made(TOP)
    other.config["architecture"] = "vax"
    foreign = {**other.described(), "platform": {"os": "linux", "architecture": "vax"}}
    ours = {**made.described(), "platform": {"os": "linux", "architecture": made.config["architecture"]}}
    layout = made.write(tmp_path / "layout", other)
    inner = json.dumps({"schemaVersion": 2, "manifests": [foreign, ours]}).encode()
    described = made.blob(inner, mediaType="application/vnd.oci.image.index.v1+json")
    (layout / "blobs/sha256" / described["digest"].removeprefix("sha256:")).write_bytes(inner)
    described["annotations"] = {"org.opencontainers.image.ref.name": NAME}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    (image,) = import_all(store, layout)
    assert store.config(image).architecture == made.config["architecture"]
    (layout / "index.json").write_text(
        json.dumps({"schemaVersion": 2, "manifests": [{**foreign, "annotations": described["annotations"]}]})
    )
    with pytest.raises(BadImage, match="vax"):
        import_all(store, layout)


def test_media_types_may_be_missing(store: ImageStore, tmp_path: Path) -> None:
    made = Made(BASE)
    layout = made.write(tmp_path / "layout")
    index = json.loads((layout / "index.json").read_text())
    assert index["manifests"][0].pop("mediaType") == MANIFESTS[0]
    (layout / "index.json").write_text(json.dumps(index))
    assert len(import_all(store, layout)) == 1


def test_layer_is_recognised_by_its_whole_chain_id(store: ImageStore, tmp_path: Path) -> None:
    (image,) = import_all(store, Made(BASE).write(tmp_path / "one"))
    (name,) = image.layers
    layer_file = store.layers_dir / name / "layer.json"
    told = json.loads(layer_file.read_text())
    assert told["chain_id"].removeprefix("sha256:").startswith(name)
    told["chain_id"] = f"sha256:{name}{'0' * 40}"
    layer_file.write_text(json.dumps(told))
    (store.layers_dir / name / "fs/etc/os").write_text("another layer with that name")
    import_all(store, Made(BASE, TOP, name="registry.test/other:1").write(tmp_path / "two"))
    lowest = store.get("registry.test/other:1").layers[0]
    assert lowest.startswith(name)
    assert (store.layers_dir / lowest / "fs/etc/os").read_text() == "base"
    assert store.get(image.id) == image
    import_all(store, Made(BASE, TOP, name="registry.test/again:1").write(tmp_path / "three"))
    assert store.get("registry.test/again:1").layers[0] == lowest
    consistent(store)
