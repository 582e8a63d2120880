"""The store imports images atomically, shares layers, and stays consistent after a kill."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pytest

from actors.runtime.images.errors import BadImage, ImageError, NoSuchImage, StoreFull
from actors.runtime.images.limits import Budget, Limits
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.manifest import INDEXES, MANIFESTS, Descriptor
from actors.runtime.images.sources.layout import import_all
from actors.runtime.images.sources.progress import Cancelled
from actors.runtime.images.sources.source import add_image
from tests.runtime.build import NAME, Made, entry, tar

BASE = tar(entry("etc/os", b"base"), entry("bin/sh", b"shell", mode=0o755))
TOP = tar(entry("app", b"application"), entry("etc/.wh.os", b""))


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store", Limits(reserve_bytes=0))


def layers_of(store: ImageStore) -> set[str]:
    return set(os.listdir(store.layers_dir))


def consistent(store: ImageStore) -> None:
    """Require that the store has all layers and documents that images use, readable, and no others."""
    assert os.listdir(store.incoming) == []
    assert layers_of(store) == {layer for image in store.list() for layer in image.layers}
    for image in store.list():
        store.execution(image)
        assert sum(len(os.listdir(store.layers_dir / layer / "fs")) for layer in image.layers) > 0


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


def test_short_names_get_docker_io(store: ImageStore, tmp_path: Path) -> None:
    import_all(store, Made(BASE, name="docker.io/library/tool:latest").write(tmp_path / "layout"))
    assert store.find("tool") == store.find("tool:latest") == store.find("docker.io/tool") != None  # noqa: E711
    with pytest.raises(NoSuchImage):
        store.get("tool:other")


def spoiled(how: str) -> Made:
    made = Made(BASE, TOP)
    if how == "diff id":
        made.config["rootfs"]["diff_ids"][1] = f"sha256:{'0' * 64}"
    elif how == "layers":
        made.layers.pop()
    elif how == "digest":
        made.layers[0]["digest"] = "md5:1234"
    elif how == "path in a digest":
        made.layers[0]["digest"] = f"sha256:../../{'0' * 58}"
    elif how == "missing blob":
        made.blobs.pop(made.layers[1]["digest"])
    elif how == "architecture":
        made.config["architecture"] = "vax"
    elif how == "changed layer":
        made.blobs[made.layers[1]["digest"]] = BASE
    elif how == "broken gzip":
        made.blobs[made.layers[1]["digest"]] = gzip.compress(TOP)[:-9]
    elif how == "broken zstd":
        made.blobs[made.layers[1]["digest"]] = b"\x28\xb5\x2f\xfd" + bytes(100)
    return made


@pytest.mark.parametrize(
    "how",
    [
        "diff id",
        "layers",
        "digest",
        "path in a digest",
        "missing blob",
        "architecture",
        "changed layer",
        "broken gzip",
        "broken zstd",
    ],
)
def test_bad_image_is_refused_and_leaves_nothing(store: ImageStore, tmp_path: Path, how: str) -> None:
    layout = spoiled(how).write(tmp_path / "layout")
    with pytest.raises(BadImage):
        import_all(store, layout)
    assert store.list() == []
    consistent(store)


def test_manifest_with_another_digest_is_refused(store: ImageStore, tmp_path: Path) -> None:
    layout = Made(BASE).write(tmp_path / "layout")
    digest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"].removeprefix("sha256:")
    blob = layout / "blobs" / "sha256" / digest
    blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(BadImage, match="digest"):
        import_all(store, layout)


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"{",
        b"[]",
        b'{"schemaVersion": 1, "manifests": []}',
        b"[" * 100_000,
        json.dumps({"schemaVersion": 2, "manifests": [{"digest": "x", "size": 1}]}).encode(),
        json.dumps({"schemaVersion": 2, "manifests": []}).encode(),
        b" " * (5 * 1024 * 1024),
    ],
)
def test_invalid_index_is_refused(store: ImageStore, tmp_path: Path, index: bytes) -> None:
    layout = Made(BASE).write(tmp_path / "layout")
    (layout / "index.json").write_bytes(index)
    with pytest.raises(BadImage):
        import_all(store, layout)


def test_layout_with_a_link_as_blob_is_refused(store: ImageStore, tmp_path: Path) -> None:
    made = Made(BASE)
    layout = made.write(tmp_path / "layout")
    (blob,) = [layout / "blobs/sha256" / str(one["digest"]).removeprefix("sha256:") for one in made.layers]
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadImage):
        import_all(store, layout)


def test_a_layer_bomb_is_stopped_and_leaves_nothing(store: ImageStore, tmp_path: Path) -> None:
    bomb = tar(entry("zeros", bytes(3_000_000)))
    layout = Made(bomb, how="gzip").write(tmp_path / "layout")
    small = ImageStore(store.root, Limits(image_bytes=1_000_000, reserve_bytes=0))
    with pytest.raises(BadImage, match="1000000 bytes"):
        import_all(small, layout)
    consistent(small)
    padded = Made(TOP + bytes(5_000_000), how="gzip").write(tmp_path / "padded")
    tiny = ImageStore(store.root, Limits(image_bytes=1_000_000, image_entries=10, reserve_bytes=0))
    with pytest.raises(BadImage, match="decompresses"):
        import_all(tiny, padded)


def test_a_full_disk_leaves_nothing(store: ImageStore, tmp_path: Path) -> None:
    full = ImageStore(store.root, Limits(reserve_bytes=1 << 62))
    with pytest.raises(StoreFull):
        import_all(full, Made(BASE).write(tmp_path / "layout"))
    consistent(full)


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


def test_media_types_may_be_missing(store: ImageStore, tmp_path: Path) -> None:
    made = Made(BASE)
    layout = made.write(tmp_path / "layout")
    index = json.loads((layout / "index.json").read_text())
    assert index["manifests"][0].pop("mediaType") == MANIFESTS[0]
    (layout / "index.json").write_text(json.dumps(index))
    assert len(import_all(store, layout)) == 1


def test_invalid_archive_is_refused(store: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "no.tar").write_bytes(b"no" * 1000)
    with pytest.raises(ImageError):
        import_all(store, tmp_path / "no.tar")


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
        raise Cancelled("nobody waits")

    thread = threading.Thread(target=unpack)
    thread.start()
    try:
        assert entered.wait(20)
        budget = Budget(store.limits, str(store.root), leave)
        with store.lease() as lease, pytest.raises(Cancelled, match="nobody waits"):
            store.add_layer(digest, digest, (), io.BytesIO(BASE), budget, lease)
        assert layers_of(store) == set()
    finally:
        over.set()
        thread.join()


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


def test_deeply_nested_indexes_are_refused_with_their_number(store: ImageStore) -> None:
    made = Made(BASE)
    described = made.described()
    for _ in range(3):
        content = json.dumps({"schemaVersion": 2, "mediaType": INDEXES[0], "manifests": [described]}).encode()
        described = made.blob(content, mediaType=INDEXES[0])

    class Nested:
        def document(self, descriptor: Descriptor, _: int) -> bytes:
            return made.blobs[descriptor.digest]

        def blob(self, descriptor: Descriptor) -> contextlib.AbstractContextManager[IO[bytes]]:
            raise AssertionError(descriptor)

    outer = Descriptor(digest=described["digest"], size=described["size"], media_type=INDEXES[0])
    with pytest.raises(BadImage, match="indexes nested 3 deep"):
        add_image(store, Nested(), NAME, outer)
