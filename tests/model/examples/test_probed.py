"""Probe results in a pod's status: during a long step, after its worker failed, and for a probe that is added."""

from __future__ import annotations

from msgspec.structs import replace

from tests.model import specs
from tests.model.cri.runtime import Program
from tests.model.goals import settle
from tests.model.world import World

PLAIN = {"name": "a", "image": "image:1"}
PROBES = dict.fromkeys(("startupProbe", "livenessProbe", "readinessProbe"), specs.PROBE)


def status(world: World, uid: str) -> tuple[str, bool, bool | None, int]:
    """The condition Ready, and ready, started and restarts of the first container."""
    found = world.pods()[uid].status
    (ready,) = [one.status for one in found.conditions if one.type == "Ready"]
    first = found.container_statuses[0]
    return ready, first.ready, first.started, first.restart_count


def test_readiness_is_published_while_a_container_ends(make_world):
    world = make_world(static=False)
    world.program = Program(term_s=None)
    spec = {"containers": [PLAIN | PROBES], "restartPolicy": "Always", "terminationGracePeriodSeconds": 60}
    pod = specs.api_pod(spec, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(30)
    assert status(world, pod.metadata.uid) == ("True", True, True, 0)
    world.health["a", "liveness"] = False
    world.peers["probe"].look()
    world.clock.advance(3)
    assert status(world, pod.metadata.uid) == ("True", True, True, 0), "it ends for 60 s"
    world.health["a", "readiness"] = False
    world.peers["probe"].look()
    world.clock.advance(2)
    assert status(world, pod.metadata.uid) == ("False", False, True, 0)


def test_worker_that_follows_a_failed_one_knows_its_pod(make_world):
    world = make_world(static=False)
    spec = {"containers": [PLAIN | PROBES], "restartPolicy": "Always", "activeDeadlineSeconds": 120}
    pod = specs.api_pod(spec, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(60)
    assert status(world, pod.metadata.uid) == ("True", True, True, 0)
    world.process.actor._worker_finished(pod.metadata.uid, failed=True)
    world.clock.advance(10)
    assert status(world, pod.metadata.uid) == ("True", True, True, 0)
    world.clock.advance(60)
    assert world.pods()[pod.metadata.uid].status.phase == "Failed", "its deadline does not begin anew"


def test_probe_that_is_added_to_a_pod_runs(make_world):
    world = make_world(static=True)
    pod = specs.static_pod({"containers": [PLAIN], "restartPolicy": "Always"})
    world.update("file", "ADD", pod)
    world.clock.advance(10)
    assert status(world, pod.metadata.uid)[:2] == ("True", True)
    container = PLAIN | {"readinessProbe": specs.PROBE}
    changed = specs.static_pod({"containers": [container], "restartPolicy": "Always"})
    world.update("file", "UPDATE", replace(changed, metadata=pod.metadata))
    world.clock.advance(30)
    assert status(world, pod.metadata.uid)[:2] == ("True", True)
    assert pod.metadata.uid in world.peers["probe"].pods
    settle(world)
