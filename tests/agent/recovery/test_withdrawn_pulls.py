"""Pods that are gone before their images are there: their pulls delay no other pod's."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from proto.agent.actor import Describe
from proto.wire.errors import ActorError
from tests.agent.agent import container, pod
from tests.agent.faults import Eye
from tests.containerd import ContainerdInstance
from tests.containerd.registry import Registry, registry
from tests.harness import stop_process, wait_for

pytestmark = [pytest.mark.usefixtures("clean"), pytest.mark.timeout(300)]

GONE = ("gone1", "gone2", "gone3")


@pytest.fixture(scope="module")
def hub(containerd: ContainerdInstance) -> Iterator[Registry]:
    """A registry that holds each request for an image `gone...` until the module's tests are over."""
    over = threading.Event()
    with registry([containerd.registries]) as one:
        find = one._find

        def held(path: str) -> tuple[bytes, str] | None:
            if "gone" in path:
                over.wait()
            return find(path)

        one._find = held  # type: ignore[method-assign]
        yield one
        over.set()


def pulls(eye: Eye) -> set[str] | None:
    """Images of pulls in the queue or in progress, without their registry; None while image_pull does not answer."""
    try:
        return {image.rpartition("/")[2] for image in eye.client.ask("image_pull", Describe(), 5.0).state["pulls"]}
    except ActorError:
        return None


def begin(eye: Eye, hub: Registry, *names: str) -> None:
    for name in names:
        main = container("c", image=hub.add(name), imagePullPolicy="Always")
        eye.agent.write(name, pod(name, main))


def remove(eye: Eye, *names: str) -> None:
    for name in names:
        (eye.agent.manifests / f"{name}.yaml").unlink()


def runs(eye: Eye, name: str) -> bool:
    found = eye.container(name)
    return found is not None and found.state is not None and found.state.running is not None


def replace(eye: Eye, actor: str) -> None:
    """End an actor, and wait for its next incarnation."""
    before = eye.actors()[actor].incarnation
    eye.signal(actor)
    wait_for(lambda: (row := eye.actors().get(actor)) and row.incarnation > before, 60, f"{actor} starts again")
    wait_for(eye.all_ready, 60, f"{actor} is ready")


def test_pulls_of_removed_pods_leave_the_queue(eye: Eye, hub: Registry) -> None:
    begin(eye, hub, *GONE)
    wait_for(lambda: pulls(eye) == {f"{name}:latest" for name in GONE}, 60, "the registry's queue is full")
    remove(eye, *GONE)
    begin(eye, hub, "needed")
    wait_for(lambda: runs(eye, "needed"), 90, "the pod that is left runs")
    wait_for(lambda: pulls(eye) == set(), 60, "none is left")


def test_pulls_of_pods_that_go_while_pod_workers_is_down_leave_the_queue(eye: Eye, hub: Registry) -> None:
    begin(eye, hub, *GONE)
    wait_for(lambda: pulls(eye) == {f"{name}:latest" for name in GONE}, 60, "the registry's queue is full")
    stop_process(eye.actors()["pod_workers"].pid)
    remove(eye, *GONE)
    wait_for(lambda: eye.signal("pod_workers"), 60, "it is killed before it hears of that")
    begin(eye, hub, "later")
    wait_for(lambda: runs(eye, "later"), 90, "the pod that is left runs")
    wait_for(lambda: pulls(eye) == set(), 60, "none is left")


def test_pulls_go_on_for_pods_that_are_there_when_their_actors_end(eye: Eye, hub: Registry) -> None:
    begin(eye, hub, *GONE)
    wanted = {f"{name}:latest" for name in GONE}
    wait_for(lambda: pulls(eye) == wanted, 60, "the registry's queue is full")
    for actor in ("pod_workers", "image_pull", "pleg"):
        replace(eye, actor)
        wait_for(lambda: pulls(eye) == wanted, 60, "all are wanted again")
    remove(eye, *GONE)
    wait_for(lambda: pulls(eye) == set(), 60, "none is left")


def test_pulls_of_pods_that_go_when_their_actors_end_are_withdrawn(eye: Eye, hub: Registry) -> None:
    """Requests may arrive after their asker has given them up: they were on their way to the image_pull that ended."""
    for _ in range(3):
        begin(eye, hub, *GONE)
        wait_for(lambda: pulls(eye) == {f"{name}:latest" for name in GONE}, 60, "the registry's queue is full")
        for actor in ("pod_workers", "image_pull", "pleg"):
            eye.signal(actor)
        remove(eye, *GONE)
        wait_for(lambda: eye.all_ready() and not eye.pods(), 60, "the pods are gone")
        wait_for(lambda: pulls(eye) == set(), 60, "none of their pulls is left")
