"""Restarts: bugs that the model of one pod found, as examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model import specs
from tests.model.examples.example_pods import PLAIN, UID, shown
from tests.model.goals import explain, settle


def test_restart_count_never_falls_when_newest_instance_is_lost(make_world):
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    world.clock.advance(5)
    for sandbox in world.runtime.sandboxes.values():
        world.runtime.end_sandbox(sandbox)
    world.clock.advance(30)
    assert shown(world).restart_count == 1
    world.remove(list(world.runtime.sandboxes)[-1])
    world.kill()
    settle(world)
    assert shown(world).restart_count == 2


def test_first_container_counts_on_from_logs_that_are_left(make_world):
    """A static pod that is put back has its old UID, and its logs stay for up to a minute."""
    world = make_world()
    pod = specs.static_pod(PLAIN)
    logs = Path(world.settings.pod_logs_dir, f"{pod.metadata.namespace}_{pod.metadata.name}_{pod.metadata.uid}", "a")
    logs.mkdir(parents=True)
    for name in ("0.log", "3.log.20260101-000000.gz", "20.txt", "99999999999.log"):
        (logs / name).write_text("a line")
    (logs / "5.log").touch()  # of a start that a kill broke off
    world.programs.clear()
    world.update("file", "ADD", pod)
    world.clock.advance(5)
    (status,) = world.pods().values()
    assert status.status.container_statuses[0].restart_count == 4
    settle(world)


@pytest.mark.parametrize("killed", [False, True])
def test_container_removed_from_outside_counts_as_one_restart(make_world, killed):
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    world.clock.advance(5)
    world.faults["CreateContainer"] = ["fails"] * 3
    world.remove(world.running()[0].id)
    world.clock.advance(0.3)
    assert shown(world).restart_count == 1
    if killed:
        world.kill()
    settle(world)
    assert shown(world).restart_count == 1
    assert world.running()[0].config.metadata.attempt == 1


YEAR_S = 365 * 86400.0


def test_pod_starts_in_a_new_sandbox_though_the_clock_was_set_back(make_world):
    """A machine boots with its clock behind: what ran before was created later than what is created now."""
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    world.clock.advance(5)
    (sandbox,) = world.runtime.sandboxes.values()
    world.clock.behind_s = YEAR_S
    world.kill()
    world.runtime.end_sandbox(sandbox)
    world.clock.advance(30)
    assert shown(world).restart_count == 1, explain(world)
    settle(world)
    assert [one.config.metadata.attempt for one in world.runtime.sandboxes.values()] == [0, 1]


@pytest.mark.parametrize("killed", [False, True])
def test_crashed_container_restarts_though_the_clock_was_set_back(make_world, killed):
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    waits = []
    for number in range(5):
        world.clock.advance(5)
        world.runtime.end(world.running()[0], 1)
        began = world.clock.now
        world.clock.advance(1)
        if number == 2:
            world.clock.behind_s = YEAR_S
            if killed:
                world.kill()
        while not world.running():
            assert world.clock.now < began + 200, explain(world)
            world.clock.step()
        waits.append(world.clock.now - began)
    assert [round(one, -1) for one in waits] == [0, 10, 20, 40, 80]
    settle(world)


def waits_after_kills(world, life_s, kills, on_kill=lambda _: None):
    """Let each instance fail its liveness probe after that life. Returns the whole seconds from each kill to a start.

    `on_kill` gets the number of each kill, after its SIGTERM and before its end.
    """
    world.health["a", "liveness"] = True
    world.update("api", "ADD", specs.api_pod({"containers": [PROBED], "restartPolicy": "Always"}, 1))
    waits = []
    for number in range(kills):
        while not world.running():
            world.clock.step()
        killed = world.running()[0]
        world.clock.advance(life_s)
        world.health["a", "liveness"] = False
        world.peers["probe"].look()
        world.health["a", "liveness"] = True
        while not killed.signalled:
            world.clock.step()
        on_kill(number)
        while killed.running or not world.running():
            world.clock.step()
        waits.append(int((world.running()[0].started_at - killed.finished_at) / 1e9))
    world.check()
    assert shown(world).restart_count in (kills - 1, kills)
    return waits


PROBED = {**PLAIN["containers"][0], "livenessProbe": specs.PROBE}


@pytest.mark.parametrize(("life_s", "waits"), [(15, [0, 0, 0, 20, 40, 80]), (30, [0, 0, 0, 0, 40, 80])])
def test_a_liveness_kill_waits_as_in_the_kubelet(make_world, life_s, waits):
    """The kubelet decides on the view before the kill: the wait counts from the end of the instance before."""
    assert waits_after_kills(make_world(static=False), life_s, len(waits)) == waits


@pytest.mark.parametrize("term_s", [0.51, 0.6, 1.0])
def test_a_restart_between_kill_and_start_changes_no_wait(make_world, term_s):
    """The container ends before the next process starts, while it does, or afterwards."""
    world = make_world(static=False)
    world.program = type(world.program)(term_s=term_s)

    def kill(_):
        world.clock.advance(0.5)  # until the checkpoint is written
        world.kill()

    assert waits_after_kills(world, 15, 6, kill) == [0, 0, 0, 20, 40, 80]


RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}
TRIGGER = {"name": "x", "image": "image:1", "restartPolicy": "Never", "restartPolicyRules": [RULE]}
RESTARTED = {**PLAIN, "containers": [*PLAIN["containers"], TRIGGER]}


def restarting_all(world):
    conditions = world.pods()[UID].status.conditions
    return next(one.status for one in conditions if one.type == "AllContainersRestarting") == "True"


@pytest.mark.parametrize("lost", ["sandbox", "sandbox, and killed", "source"])
def test_a_held_back_restart_of_all_ends_when_something_is_lost(make_world, lost):
    """The container whose exit matched the rule waits for its back-off when its sandbox or it itself is lost."""
    world = make_world(static=False)
    world.programs["x"] = type(world.program)(exits=88, after_s=1.0)
    world.update("api", "ADD", specs.api_pod(RESTARTED, 1))

    def held_back():
        return shown(world, "x").state.waiting is not None and not world.running()

    world.clock.advance(5)
    while not held_back():
        world.clock.step()
    world.clock.advance(1)
    assert held_back(), explain(world)
    assert restarting_all(world)
    world.programs["x"] = type(world.program)()
    if lost == "source":
        (source,) = world.runtime.containers
        world.remove(source)
    else:
        (sandbox,) = world.runtime.sandboxes.values()
        world.runtime.end_sandbox(sandbox)
    if lost == "sandbox, and killed":
        world.clock.advance(0.01)
        world.kill()
    world.clock.advance(60)
    assert sorted(one.name for one in world.running()) == ["a", "x"], explain(world)
    assert not restarting_all(world), explain(world)
    begun = world.runtime.begun
    world.clock.advance(300)
    assert (world.runtime.begun, restarting_all(world)) == (begun, False), explain(world)


def test_a_restart_of_all_goes_on_when_its_cause_is_removed(make_world):
    """Another client of the runtime removes the container whose exit matched, before the others are removed."""
    world = make_world(static=False)
    world.programs["x"] = type(world.program)(exits=88, after_s=1.0)
    world.faults["RemoveContainer"] = ["fails"]
    world.update("api", "ADD", specs.api_pod(RESTARTED, 1))
    while world.faults["RemoveContainer"]:
        world.clock.step()
    world.programs["x"] = type(world.program)()
    first = next(one for one in world.runtime.containers.values() if one.name == "a")
    world.remove(next(one.id for one in world.runtime.containers.values() if one.name == "x"))
    world.clock.advance(60)
    assert first.id not in world.runtime.containers
    assert sorted(one.name for one in world.running()) == ["a", "x"], explain(world)
    assert not restarting_all(world), explain(world)


@pytest.mark.parametrize("killed", [False, True])
def test_cause_of_a_liveness_kill_outlives_events_and_a_restart(make_world, killed):
    """A wait record has it: the recorder drops events of a pod that has too many."""
    world = make_world(static=False)
    assert waits_after_kills(world, 15, 4)[-1] == 20
    world.health["a", "liveness"] = False
    world.peers["probe"].look()
    (last,) = world.running()
    while last.running:
        world.clock.step()
    world.health["a", "liveness"] = True
    world.clock.advance(2)
    if killed:
        world.kill()
        world.clock.advance(5)
    operations = world.process.actor.workers[UID].operations
    assert not world.running(), "it is held back"
    assert operations.last_end("a").startswith("it was killed: Container a failed liveness probe (exit code "), explain(
        world
    )
    assert operations.loop_s("a") >= 3 * 15 + 20, "since its first end"
    settle(world)
