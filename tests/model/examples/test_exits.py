"""Exits of containers are published while their pod terminates."""

from __future__ import annotations

import pytest

from tests.model import specs
from tests.model.examples.example_pods import UID, shown
from tests.model.goals import settle


def begin_ends(world, names, grace_s, hook=()):
    """Delete a pod of these containers; those in `hook` have a preStop hook for the whole grace period."""
    slow = {"lifecycle": {"preStop": {"sleep": {"seconds": grace_s}}}}
    containers = [{"name": one, "image": "image:1", **(slow if one in hook else {})} for one in names]
    spec = {"containers": containers, "restartPolicy": "Always", "terminationGracePeriodSeconds": grace_s}
    pod = specs.api_pod(spec, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(10)
    assert len(world.running()) == len(names)
    world.update("api", "UPDATE", specs.with_deletion(pod, grace_s))


def ended(world):
    """(phase, names of containers that are published as ended)."""
    status = world.pods()[UID].status
    return status.phase, {one.name for one in status.container_statuses if one.state.terminated is not None}


@pytest.mark.parametrize("killed", [False, True])
def test_exits_are_published_while_another_container_ends(make_world, killed):
    """One is stopped, one ends by itself, and one is in its hook."""
    world = make_world(static=False)
    begin_ends(world, "abc", 60, hook="bc")
    world.clock.advance(1)
    assert ended(world) == ("Running", {"a"})
    assert not shown(world, "a").ready
    if killed:
        world.kill()
        world.clock.advance(2)
        assert ended(world) == ("Running", {"a"})
    world.runtime.end(next(one for one in world.running() if one.name == "b"), 7)
    world.clock.advance(1)
    assert (ended(world), shown(world, "b").state.terminated.exit_code) == (("Running", {"a", "b"}), 7)
    world.clock.advance(60)
    assert ended(world) == ("Failed", {"a", "b", "c"})
    settle(world)


@pytest.mark.parametrize("fault", ["fails", "late", "slow", "down"])
def test_an_exit_is_read_again_while_its_pod_terminates(make_world, fault):
    world = make_world(static=False)
    begin_ends(world, "abc", 600, hook="bc")
    world.clock.advance(5)
    world.faults["ContainerStatus"] = [fault]
    world.runtime.end(next(one for one in world.running() if one.name == "b"), 7)
    world.clock.advance(60)
    assert ended(world) == ("Running", {"a", "b"})
    settle(world)


def test_many_exits_of_an_ending_pod_are_published_together(make_world):
    world = make_world(static=False)
    names = [f"c{number}" for number in range(50)]
    begin_ends(world, names, 60, hook=names)
    world.clock.advance(1)
    report, published = world.process.actor.workers[UID].report, []
    publish = report.publish
    report.publish = lambda *args: (published.append(args), publish(*args))
    for one in world.running()[:49]:
        world.runtime.end(one, 1)
        world.clock.advance(0.001)
    world.clock.advance(1)
    assert (len(ended(world)[1]), len(published)) == (49, 1)
    settle(world)


def test_last_exit_of_a_pod_is_published_with_its_end(make_world):
    """Before it, the sandbox is to stop and claims are to be unprepared."""
    world = make_world(static=False)
    world.programs = {"a": type(world.program)(term_s=0.3), "b": type(world.program)(term_s=0.35)}
    begin_ends(world, "ab", 60)
    world.faults["StopPodSandbox"] = ["slow"]
    while world.clock.step() and any(one.ready for one in world.runtime.sandboxes.values()):
        assert ended(world) == ("Running", set())
    world.clock.advance(5)
    assert ended(world) == ("Succeeded", {"a", "b"})
    settle(world)


def test_last_exit_beside_another_is_published_with_the_end(make_world):
    """The other one ends by itself in its hook, and the last one ends while the runtime is asked about that."""
    world = make_world(static=False)
    world.programs = {"b": type(world.program)(term_s=0.5)}
    begin_ends(world, "ab", 5, hook="a")
    world.clock.advance(0.05)
    world.runtime.end(next(one for one in world.running() if one.name == "a"), 1)
    world.faults["ContainerStatus"] = ["slow"]
    while world.clock.step() and any(one.ready for one in world.runtime.sandboxes.values()):
        assert ended(world) == ("Running", set())
    settle(world)
