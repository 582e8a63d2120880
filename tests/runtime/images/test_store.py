"""The store imports images atomically, shares layers, and stays consistent after a kill."""

import contextlib
import errno
import gzip
import hashlib
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec
import pytest

from actors._host.files import checkpoint, trees
from actors.runtime.images.errors import BadImage, ImageError, NoSuchImage, StoreFull
from actors.runtime.images.limits import Budget, Limits
from actors.runtime.images.local.store import VERSION, ImageStore
from actors.runtime.images.manifest import INDEXES, MANIFESTS, Descriptor, Manifest
from actors.runtime.images.sources.layout import import_all
from actors.runtime.images.sources.progress import Cancelled
from actors.runtime.images.sources.source import add_image
from tests.runtime.images.build import NAME, Made, entry, tar

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


def test_layers_share_the_limit_of_decompressed_bytes(store: ImageStore, tmp_path: Path) -> None:
    limits = Limits(image_bytes=1_000_000, image_entries=10, reserve_bytes=0)
    layers = [tar(entry("f", b"%d" % number)) + bytes(400_000) for number in range(3)]
    (image,) = import_all(ImageStore(tmp_path / "two", limits), Made(*layers[:2], how="zstd").write(tmp_path / "fits"))
    assert len(image.layers) == 2
    with pytest.raises(BadImage, match="decompresses to more than an image may have"):
        import_all(ImageStore(store.root, limits), Made(*layers, how="zstd").write(tmp_path / "layout"))
    consistent(store)


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


def test_use_of_images_leaves_out_what_is_being_removed(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_all(store, Made(BASE).write(tmp_path / "layout"))
    before, listdir = store.usage(), os.listdir
    assert before[0] > 0
    monkeypatch.setattr(os, "listdir", lambda path: [*listdir(path), "just-removed"])
    assert store.usage() == before


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
