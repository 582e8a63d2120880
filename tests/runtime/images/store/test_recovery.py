"""The store stays consistent after kills, damaged files and a change of its version."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from actors._host.files import checkpoint
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import VERSION, ImageStore
from actors.runtime.images.sources.layout import import_all
from tests.runtime.images.build import Made, entry, tar
from tests.runtime.images.store.content import BASE, TOP, consistent, layers_of

_IMPORTER = """
import sys
from pathlib import Path
from actors.runtime.images.sources.layout import import_all
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore
store = ImageStore(Path(sys.argv[1]), Limits(reserve_bytes=0))
store.clear_leftovers()
print("go", flush=True)
while True:
    import_all(store, Path(sys.argv[2]))
    import_all(store, Path(sys.argv[3]))
    store.remove("registry.test/made:1")
"""


def test_a_kill_at_any_moment_leaves_a_consistent_store(tmp_path: Path) -> None:
    many = tar(*(entry(f"d{number}/f", b"x" * 3000) for number in range(100)))
    one = Made(BASE, many, how="gzip").write(tmp_path / "one")
    two = Made(BASE, TOP, name="registry.test/other:1").write(tmp_path / "two")
    chance = random.Random(8)
    for _ in range(int(os.environ.get("NODEVISOR_KILLS", "8"))):
        command = [sys.executable, "-c", _IMPORTER, str(tmp_path / "store"), str(one), str(two)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"go\n"
            time.sleep(chance.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
        store = ImageStore(tmp_path / "store", Limits(reserve_bytes=0))
        store.clear_leftovers()
        consistent(store)
        for image in store.list():
            if many_layer := [layer for layer in image.layers if (store.layers_dir / layer / "fs/d0").exists()]:
                assert len(os.listdir(store.layers_dir / many_layer[0] / "fs")) == 100


def test_damaged_index_loses_images_but_not_the_start(store: ImageStore, tmp_path: Path) -> None:
    import_all(store, Made(BASE).write(tmp_path / "layout"))
    (store.root / "index.json").write_text("{")
    again = ImageStore(store.root)
    again.clear_leftovers()
    assert again.list() == []
    consistent(again)


def test_layer_of_an_older_version_is_replaced_by_the_next_pull(store: ImageStore, tmp_path: Path) -> None:
    layout = Made(BASE, TOP).write(tmp_path / "layout")
    (old,) = import_all(store, layout)
    for name in old.layers:
        layer_file = store.layers_dir / name / "layer.json"
        told = json.loads(layer_file.read_text())
        del told["chain_id"]
        layer_file.write_text(json.dumps(told))
    store = ImageStore(store.root, Limits(reserve_bytes=0))
    store.clear_leftovers()
    assert store.list() == [old]
    (new,) = import_all(store, layout)
    assert set(new.layers).isdisjoint(old.layers)
    consistent(store)


def test_an_index_that_cannot_be_read_loses_no_layer(store: ImageStore, tmp_path: Path) -> None:
    (image,) = import_all(store, Made(BASE).write(tmp_path / "layout"))
    index = store.root / "index.json"
    whole = index.read_bytes()
    checkpoint.save(index, VERSION + 1, "of a newer version")
    with pytest.raises(OSError, match="start the version that wrote it, or remove it"):
        ImageStore(store.root)
    index.unlink()
    index.mkdir()
    with pytest.raises(OSError, match="it is no regular file"):
        ImageStore(store.root)
    index.rmdir()
    index.write_bytes(whole)
    assert ImageStore(store.root).list() == [image]


def test_damaged_layer_hides_no_other_and_is_pulled_again(
    store: ImageStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (kept,) = import_all(store, Made(BASE).write(tmp_path / "kept"))
    alone = store.usage()
    top = Made(BASE, TOP, name="registry.test/top:1").write(tmp_path / "top")
    (damaged,) = import_all(store, top)
    layer_file = store.layers_dir / damaged.layers[1] / "layer.json"
    layer_file.write_bytes(layer_file.read_bytes()[:5])
    assert store.usage() == store.usage() == alone
    assert caplog.text.count("cannot count the disk use of layer") == 1
    again = ImageStore(store.root, Limits(reserve_bytes=0))
    again.clear_leftovers()
    assert again.list() == [kept]
    assert layers_of(again) == set(kept.layers)
    assert import_all(again, top)[0].id == damaged.id
    consistent(again)


def test_layer_that_cannot_be_read_loses_no_image(store: ImageStore, tmp_path: Path) -> None:
    (image,) = import_all(store, Made(BASE).write(tmp_path / "layout"))
    layer_file = store.layers_dir / image.layers[0] / "layer.json"
    layer_file.unlink()
    layer_file.mkdir()  # an OSError that is neither of a missing file nor of its content
    assert ImageStore(store.root).list() == [image]
