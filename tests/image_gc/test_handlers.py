"""Images that are told apart by their runtime handler (feature gate RuntimeClassInImageCriApi, KEP-4216)."""

# ruff: noqa: N802  (names are those of the generated servicer)

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from actors.image_gc.listing import Handlers, handlers_by_name, image_views, images_in_use
from actors.image_gc.policy import is_used, observe
from proto.cri import api_pb2 as pb
from proto.node.image_gc import DeleteUnusedImages
from tests.image_gc.runtime import ListRuntime
from tests.image_gc.test_actor import image_gc, settled


def entry(image: str, handler: str = "") -> pb.Image:
    return pb.Image(id=image, repo_digests=[f"r@{image}"], size=30, spec=pb.ImageSpec(runtime_handler=handler))


class HandlerRuntime(ListRuntime):
    """Has an image for each runtime handler, and removes that of the asked handler."""

    def put(self, image: str, *handlers: str) -> None:
        for handler in handlers:
            self.images[f"{image} {handler}"] = entry(image, handler)

    def run(self, name: str, image: str, handler: str) -> None:
        self.sandboxes[name] = pb.PodSandbox(id=name, runtime_handler=handler)
        self.containers[name] = pb.Container(id=name, pod_sandbox_id=name, image_ref=image)

    def RemoveImage(self, request: pb.RemoveImageRequest, context: Any) -> pb.RemoveImageResponse:
        self._remove("RemoveImage", self.images, f"{request.image.image} {request.image.runtime_handler}", context)
        return pb.RemoveImageResponse()


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[HandlerRuntime]:
    with closing(HandlerRuntime(tmp_path / "r.sock")) as one:
        one.put("a", "", "kata")
        one.put("b", "kata")
        one.run("web", "a", "")
        one.run("safe", "b", "kata")
        yield one


def test_image_goes_for_the_handler_that_no_container_uses(runtime: HandlerRuntime) -> None:
    with image_gc(runtime, images_by_handler=True) as actor:
        settled(actor, 3)
        assert actor.ask(DeleteUnusedImages()).removed == ("a,kata",)
        assert sorted(runtime.images) == ["a ", "b kata"]
        runtime.run("web", "a", "kata")
        runtime.put("a", "kata")
        assert actor.ask(DeleteUnusedImages()).removed == ("a",)
        assert sorted(runtime.images) == ["a kata", "b kata"]


def test_without_the_gate_one_use_keeps_every_image_of_the_id(runtime: HandlerRuntime) -> None:
    with image_gc(runtime) as actor:
        settled(actor, 2)
        assert actor.ask(DeleteUnusedImages()).removed == ()
        assert len(runtime.images) == 3


LISTED = [entry("a"), entry("a", "kata"), entry("b", "kata"), entry("c")]


def used(containers: Iterable[pb.Container], **sandboxes: str) -> list[str]:
    """Keys of the images that the containers use."""
    views = image_views(LISTED, by_handler=True)
    in_use = images_in_use(containers, Handlers(sandboxes, handlers_by_name(views)))
    return [one.key for one in views if is_used(one, in_use)]


def container(image: str, sandbox: str, handler: str = "") -> pb.Container:
    return pb.Container(id="x", pod_sandbox_id=sandbox, image_ref=image, image=pb.ImageSpec(runtime_handler=handler))


@pytest.mark.parametrize(
    ("one", "keys"),
    [
        (container("a", "plain"), ["a"]),
        (container("a", "safe"), ["a,kata"]),
        (container("a", "plain", "kata"), ["a,kata"]),
        (container("r@a", "safe"), ["a,kata"]),
        (container("a", "gone"), ["a", "a,kata"]),
        (container("a", "strange"), ["a", "a,kata"]),
        (container("b", "plain"), ["b,kata"]),
        (container("c", "safe"), ["c"]),
    ],
    ids=["sandbox", "kata", "told", "digest", "no-sandbox", "unlisted", "only-kata", "only-plain"],
)
def test_image_of_a_container_follows_its_handler(one: pb.Container, keys: list[str]) -> None:
    """Where no image is known to be its, the container keeps all images of the ID."""
    assert used([one], plain="", safe="kata", strange="other") == keys


def test_times_of_an_image_are_of_its_handler() -> None:
    views = image_views(LISTED, by_handler=True)
    in_use = images_in_use([container("a", "safe")], Handlers({"safe": "kata"}, handlers_by_name(views)))
    seen = observe({}, views, in_use, 1.0, 9.0)
    assert {key: times.last_used == 9.0 for key, times in seen.items()} == {
        "a": False,
        "a,kata": True,
        "b,kata": False,
        "c": False,
    }
