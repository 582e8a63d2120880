"""Pods that get a worker soon: container_gc must not take them for gone."""

from __future__ import annotations

from proto.pods.pod_workers import ListPodWorkers, PodWorkerStates
from tests.model import specs
from tests.model.goals import settle
from tests.model.world import World

PLAIN = {"containers": [{"name": "a", "image": "image:1"}], "restartPolicy": "Always"}
POD = specs.api_pod(PLAIN, 1)
UID = POD.metadata.uid


def listed(world: World) -> PodWorkerStates:
    answer: PodWorkerStates = world.process.actor.on_list(ListPodWorkers())
    return answer


def test_pod_whose_worker_failed_waits_for_its_next(make_world):
    world = make_world(static=False)
    world.update("api", "ADD", POD)
    world.clock.advance(5)
    assert ([one.uid for one in listed(world).pods], listed(world).waiting) == ([UID], ())
    world.process.actor._worker_finished(UID, failed=True)
    assert (listed(world).pods, listed(world).waiting) == ((), (UID,))
    world.clock.advance(5)
    assert ([one.uid for one in listed(world).pods], listed(world).waiting) == ([UID], ())
    settle(world)
