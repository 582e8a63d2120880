"""When a pod's end lists the runtime: only when it may have something of the pod that the worker does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.model import specs
from tests.model.goals import settle
from tests.model.world import World

PLAIN = {"containers": [{"name": "a", "image": "image:1"}], "restartPolicy": "Always"}
POD = specs.api_pod(PLAIN, 1)
LISTS = {"ListPodSandbox": 1, "ListContainers": 1}


@contextmanager
def counted(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Calls of the rpcs that list a pod or read a part of it, by name."""
    made: dict[str, int] = {}

    def count(rpc: str) -> Callable[..., object]:
        call = getattr(world.runtime, rpc)

        def counting(request: Any) -> object:
            if not rpc.startswith("List") or request.filter.label_selector:  # pleg lists all pods' now and then
                made[rpc] = made.get(rpc, 0) + 1
            return call(request)

        return counting

    with monkeypatch.context() as patch:
        for rpc in ("ListPodSandbox", "ListContainers", "ContainerStatus", "PodSandboxStatus"):
            patch.setattr(world.runtime, rpc, count(rpc))
        yield made


def lists(made: dict[str, int]) -> dict[str, int]:
    return {rpc: count for rpc, count in made.items() if rpc.startswith("List")}


def end(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Remove the pod, and return the calls until its worker is done."""
    with counted(world, monkeypatch) as made:
        world.update("api", "REMOVE", POD)
        world.clock.advance(5)
        assert not world.runtime.sandboxes, "its sandbox is removed"
        return dict(made)


def test_end_of_a_pod_reads_its_container_once(make_world, monkeypatch):
    world = make_world(static=False)
    world.update("api", "ADD", POD)
    world.clock.advance(5)
    assert end(world, monkeypatch) == {"ContainerStatus": 1}
    settle(world)


@pytest.mark.parametrize("rpc", ["RunPodSandbox", "CreateContainer", "StartContainer"])
def test_pod_with_a_failed_start_is_listed_at_its_end(make_world, monkeypatch, rpc):
    world = make_world(static=False)
    world.faults[rpc] = ["lost"]
    world.update("api", "ADD", POD)
    world.clock.advance(400)
    assert world.running(), "a later call has started it"
    assert lists(end(world, monkeypatch)) == LISTS
    settle(world)


def test_pod_of_a_former_process_is_listed_at_its_end(make_world, monkeypatch):
    world = make_world(static=False)
    world.update("api", "ADD", POD)
    world.clock.advance(5)
    world.kill()
    world.clock.advance(5)
    assert lists(end(world, monkeypatch)) == LISTS
    settle(world)


@pytest.mark.parametrize("begun", [True, False])
def test_sandbox_that_a_killed_process_may_have_begun_is_looked_for(make_world, monkeypatch, begun):
    """It is not there when the next process lists the runtime. The pod's directory tells that it may come."""
    world = make_world(static=False)
    if begun:
        world.faults["RunPodSandbox"] = ["late"]
        world.update("api", "ADD", POD)
        world.clock.advance(1)
    world.kill()
    with counted(world, monkeypatch) as made:
        world.update("api", "ADD", specs.with_deletion(POD, 1))
        world.clock.advance(5)
    assert lists(made) == (LISTS if begun else {})
    world.clock.advance(400)
    assert not any(one.ready for one in world.runtime.sandboxes.values()), "what has come was ended"
    settle(world)
