"""critest's expectations of images that no other test covers: all kinds of names, and concurrent removal."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import Image, ImageStore
from actors.runtime.images.manifest import Execution
from actors.runtime.images.sources.layout import import_all
from actors.runtime.model.errors import RpcError
from actors.runtime.service.image_service import ImageService
from proto.cri import api_pb2 as pb
from tests.runtime.critest.critest import CALL_S, Critest
from tests.runtime.images.build import Made, entry, tar
from tests.runtime.images.test_registry import INDEX, FakeRegistry
from tests.runtime.instance import EmbeddedInstance

DIGEST = "sha256:"


class Registry(FakeRegistry):
    """Serves several images by tag, each as an index for several platforms."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, str] = {}

    def put(self, *tags: str, user: str = "") -> str:
        """Add an image with these tags; return the digest of its index."""
        made = Made(tar(entry("file", tags[0].encode())), how="gzip", config={"User": user})
        platform = {"os": "linux", "architecture": made.config["architecture"]}
        other = {**made.described(), "platform": {"os": "linux", "architecture": "other"}}
        manifests = [other, {**made.described(), "platform": platform}]
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})
        digest = str(made.blob(index.encode())["digest"])
        self.made.blobs |= made.blobs
        self.tags |= dict.fromkeys(tags, digest)
        return digest

    def content(self, path: str) -> bytes | None:
        name = path.rpartition("/")[2]
        return self.made.blobs.get(self.tags.get(name, name))


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with contextlib.closing(Registry()) as one:
        yield one


@pytest.fixture(scope="module")
def critest(embedded: EmbeddedInstance) -> Iterator[Critest]:
    with contextlib.closing(Critest(embedded.endpoint)) as client:
        yield client


def pull(critest: Critest, name: str) -> str:
    request = pb.PullImageRequest(image=pb.ImageSpec(image=name))
    return str(critest.images.PullImage(request, timeout=CALL_S).image_ref)


def status(critest: Critest, name: str) -> Any:
    """The image's status; None if it is missing."""
    answer = critest.images.ImageStatus(pb.ImageStatusRequest(image=pb.ImageSpec(image=name)), timeout=CALL_S)
    return answer.image if answer.HasField("image") else None


def remove(critest: Critest, name: str) -> None:
    critest.images.RemoveImage(pb.RemoveImageRequest(image=pb.ImageSpec(image=name)), timeout=CALL_S)


def listed(critest: Critest, *name: str) -> list[Any]:
    wanted = pb.ImageFilter(image=pb.ImageSpec(image=name[0])) if name else pb.ImageFilter()
    found = list(critest.images.ListImages(pb.ListImagesRequest(filter=wanted), timeout=CALL_S).images)
    parts = critest.images.StreamImages(pb.StreamImagesRequest(filter=wanted), timeout=CALL_S)
    assert [one for part in parts for one in part.images] == found
    return found


@pytest.mark.parametrize("how", ["tag", "nothing", "digest"])
def test_image_is_found_by_its_pulled_name(critest: Critest, registry: Registry, how: str) -> None:
    repository = f"{registry.host}/test/{how}"
    digest = registry.put("latest" if how == "nothing" else f"test-{how}")
    name = {"tag": f"{repository}:test-tag", "nothing": repository, "digest": f"{repository}@{digest}"}[how]
    tags = {"tag": [name], "nothing": [f"{repository}:latest"], "digest": []}[how]
    id_ = pull(critest, name)
    found = status(critest, name)
    assert (found.id, list(found.repo_tags)) == (id_, tags)
    assert list(found.repo_digests) == [f"{repository}@{digest}"]
    assert found.size > 0
    digits = id_.removeprefix(DIGEST)
    short = digits[:13]  # as crictl shows it
    for other in (id_, digits, short, f"{DIGEST}{short}", *found.repo_tags, *found.repo_digests):
        assert status(critest, other) == found
        assert [one.id for one in listed(critest, other)] == [id_]
    remove(critest, id_ if how == "tag" else short)
    assert status(critest, name) is None
    assert id_ not in [one.id for one in listed(critest)]


@pytest.mark.parametrize(
    ("user", "uid", "name"),
    [("1002", 1002, ""), ("www-data", 0, "www-data"), ("1003:users", 1003, ""), ("www-data:users", 0, "www-data")],
)
def test_user_of_an_image(critest: Critest, registry: Registry, user: str, uid: int, name: str) -> None:
    registry.put("user", user=user)
    id_ = pull(critest, f"{registry.host}/test/user:user")
    found = status(critest, id_)
    assert (found.uid.value, found.username) == (uid, name)
    remove(critest, id_)


def test_image_has_all_tags_and_is_removed_with_them(critest: Critest, registry: Registry) -> None:
    registry.put("1", "2")
    names = [f"{registry.host}/{name}" for name in ("test/tags:1", "test/tags:2", "other/tags:1")]
    (id_,) = {pull(critest, name) for name in names}
    (found,) = [one for one in listed(critest) if one.id == id_]
    assert sorted(found.repo_tags) == sorted(names)
    with ThreadPoolExecutor(5) as pool:  # concurrently, without a failure
        assert list(pool.map(lambda _: (remove(critest, id_), status(critest, id_))[1], range(5))) == [None] * 5
    assert [status(critest, name) for name in names] == [None] * 3
    remove(critest, id_)
    remove(critest, "0" * 64)


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store", Limits(reserve_bytes=0))


def service(store: ImageStore, drop_in: Path) -> ImageService:
    engine: Any = SimpleNamespace(store=store)
    stats: Any = None
    return ImageService(engine, stats, drop_in, "")


def wanted(name: str) -> pb.PullImageRequest:
    return pb.PullImageRequest(image=pb.ImageSpec(image=name))


def test_pull_of_a_vanished_client_adds_no_image(registry: Registry, store: ImageStore, tmp_path: Path) -> None:
    registry.put("late")
    name = f"{registry.host}/test/late:late"
    with pytest.raises(RpcError, match="cancelled"):
        service(store, tmp_path / "none").PullImage(wanted(name), lambda _: False)
    assert store.list() == []
    assert service(store, tmp_path / "none").PullImage(wanted(name), lambda _: True).image_ref


def test_no_image_keeps_the_others_from_the_list(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = ("99999999999999999999", "²", "9" * 5000, "1000:1000", "app")
    for number, user in enumerate(users):
        made = Made(tar(entry("file", b"x")), name=f"registry.test/made:{number}", config={"User": user})
        import_all(store, made.write(tmp_path / str(number)))

    def listed() -> dict[str, int | str]:
        found = service(store, tmp_path / "none").ListImages(pb.ListImagesRequest()).images
        return {
            one.repo_tags[0].rpartition(":")[2]: one.uid.value if one.HasField("uid") else one.username for one in found
        }

    assert listed() == {"0": users[0], "1": "²", "2": "9" * 256, "3": 1000, "4": "app", "latest": ""}
    execution = store.execution

    def broken(image: Image) -> Execution:
        if image.tags[0].endswith(":4"):
            raise ValueError("an unexpected error")
        return execution(image)

    monkeypatch.setattr(store, "execution", broken)
    assert set(listed()) == {"0", "1", "2", "3", "latest"}


def test_concurrent_image_removals_succeed(store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (image,) = import_all(store, Made(tar(entry("file", b"x"))).write(tmp_path / "layout"))
    both, find = threading.Barrier(2, timeout=0.2), store.find

    def found_by_both(name: str) -> Image | None:
        found = find(name)
        with contextlib.suppress(threading.BrokenBarrierError):  # the other thread may start after this one has ended
            both.wait()
        return found

    monkeypatch.setattr(store, "find", found_by_both)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(store.remove, [image.id] * 2)) == [None, None]
    assert store.list() == []


def test_removed_image_is_imported_from_its_file_again(store: ImageStore, tmp_path: Path) -> None:
    names = [f"registry.test/made:{number}" for number in range(2)]
    one, other = (Made(tar(entry("file", name.encode())), name=name) for name in names)
    one.write(tmp_path / "drop/layout", other)
    images = service(store, tmp_path / "drop")
    images.import_dropped()
    (first,) = [image for image in store.list() if names[0] in image.tags]
    for name, tags in ((names[0], (names[0],)), (first.digests[0], ())):
        store.remove(first.id)
        assert images.PullImage(wanted(name), lambda _: True).image_ref == first.id
        again = store.get(first.id)
        assert (again.tags, again.digests, len(store.list())) == (tags, first.digests, 2)
