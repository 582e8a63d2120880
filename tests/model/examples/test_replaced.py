"""A static pod that changed while no agent ran, on a node whose API server does not answer: it may run in that pod."""

from __future__ import annotations

from typing import Any

import pytest

from proto.pods.pod_workers import PodUpdate
from tests.model import specs
from tests.model.world import World

PLAIN = {"containers": [{"name": "a", "image": "image:1"}], "restartPolicy": "Always"}
OLD = specs.static_pod(PLAIN)
NEW = specs.static_pod({**PLAIN, "terminationGracePeriodSeconds": 7})


def silence(world: World, *sources: str) -> None:
    """These sources do not answer from now on."""
    tell = world.tell_pod_workers

    def told(source: str, message: Any) -> None:
        if not (isinstance(message, PodUpdate) and message.source in sources):
            tell(source, message)

    world.tell_pod_workers = told  # type: ignore[method-assign]


def change_while_down(world: World) -> None:
    world.kill()
    world.wanted["file"] = {NEW.metadata.uid: NEW}
    world.specs[NEW.metadata.uid] = NEW


def running(world: World) -> list[str]:
    return [one.sandbox.uid for one in world.running()]


@pytest.mark.parametrize("ended", [False, True])
def test_changed_static_pod_starts_without_the_api_server(make_world, ended):
    world = make_world(static=True)
    world.update("file", "ADD", OLD)
    world.clock.advance(5)
    assert running(world) == [OLD.metadata.uid]
    silence(world, "api")
    change_while_down(world)
    if ended:
        for container in list(world.running()):
            world.runtime.end(container, 1)
        for sandbox in world.runtime.sandboxes.values():
            sandbox.ready = False
    world.clock.advance(60)
    assert running(world) == [NEW.metadata.uid]


def test_static_pod_of_a_silent_source_is_not_ended(make_world):
    world = make_world(static=True)
    world.update("file", "ADD", OLD)
    world.clock.advance(5)
    silence(world, "api", "file")
    change_while_down(world)
    world.clock.advance(60)
    assert running(world) == [OLD.metadata.uid]
