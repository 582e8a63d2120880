"""The metrics of pods in the model: gauges by stage, ends of containers, and failed starts."""

from __future__ import annotations

from typing import Any

import pytest

from actors._metrics import kubelet as metrics
from actors._metrics.registry import Counter, Labels
from proto.pods.pod_workers import SetNodePressure
from tests.model import specs
from tests.model.cri.calls import Fault
from tests.model.cri.runtime import Program
from tests.model.world import World

ONE = {"name": "a", "image": "image:1"}
STATIC = specs.static_pod({"containers": [ONE], "terminationGracePeriodSeconds": 30})
KINDS = (("desired", ""), ("desired", "true"), ("orphan", ""), ("orphan", "true"), ("runtime_only", "unknown"))
ALL_WORKING = {(stage, *kind) for stage in ("sync", "terminating", "terminated") for kind in KINDS}
"""Upstream's mirror_pod_grace_period_test.go asks for exactly these series."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    metrics.REGISTRY.clear()


def gauges(world: World) -> list[dict[Labels, float]]:
    """The working, active and desired pods. All series of the first are there; those at zero are left out."""
    world.process.actor.measure()
    families = (metrics.WORKING_PODS, metrics.ACTIVE_PODS, metrics.DESIRED_PODS)
    working, active, desired = ({labels: value for labels, (value,) in family.take().items()} for family in families)
    assert working.keys() == ALL_WORKING
    assert active.keys() == desired.keys() == {("",), ("true",)}
    return [{labels: value for labels, value in one.items() if value} for one in (working, active, desired)]


def test_gauges_follow_a_static_pod_from_its_start_to_its_end(make_world):
    world = make_world()
    world.program = Program(term_s=None)
    assert gauges(world) == [{}, {}, {}]
    world.update("file", "ADD", STATIC)
    world.clock.advance(5)
    assert gauges(world) == [{("sync", "desired", "true"): 1}, {("true",): 1}, {("true",): 1}]
    world.update("file", "REMOVE", STATIC)
    world.clock.advance(10)
    assert gauges(world) == [{("terminating", "orphan", "true"): 1}, {}, {}]
    world.clock.advance(60)
    assert gauges(world) == [{}, {}, {}]
    assert metrics.RESTARTED_PODS.take() == {("",): (0,), ("true",): (0,)}
    assert metrics.MIRROR_PODS.take() == {}, "the actor status counts them"


def test_a_pod_of_the_api_server_is_active_until_its_end(make_world):
    world = make_world(static=False)
    world.program = Program(term_s=None)
    pod = specs.api_pod({"containers": [ONE], "terminationGracePeriodSeconds": 30}, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.update("api", "ADD", specs.with_deletion(pod, 30))
    world.clock.advance(5)
    assert gauges(world) == [{("terminating", "desired", ""): 1}, {("",): 1}, {("",): 1}]
    world.clock.advance(60)
    assert gauges(world) == [{("terminated", "desired", ""): 1}, {}, {("",): 1}]


def test_a_rejected_pod_has_no_worker_in_the_kubelet(make_world):
    world = make_world(static=False)
    world.tell_pod_workers("eviction", SetNodePressure(conditions=("DiskPressure",)))
    world.clock.advance(1)
    pod = specs.api_pod({"containers": [ONE]}, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    assert world.pods()[pod.metadata.uid].status.phase == "Failed"
    assert gauges(world) == [{}, {}, {("",): 1}]
    world.update("api", "ADD", specs.with_deletion(pod, 30))
    world.clock.advance(5)
    assert gauges(world) == [{("terminated", "desired", ""): 1}, {}, {("",): 1}]


def test_a_static_pod_that_waits_for_its_name_is_active(make_world):
    world = make_world()
    world.program = Program(term_s=None)
    world.update("file", "ADD", STATIC)
    world.clock.advance(5)
    world.update("file", "REMOVE", STATIC)
    world.update("file", "ADD", specs.static_pod({"containers": [ONE], "terminationGracePeriodSeconds": 20}))
    world.clock.advance(5)
    working = {("sync", "desired", "true"): 1, ("terminating", "orphan", "true"): 1}
    assert gauges(world) == [working, {("true",): 1}, {("true",): 1}]
    world.clock.advance(60)
    assert gauges(world) == [{("sync", "desired", "true"): 1}, {("true",): 1}, {("true",): 1}]


def test_a_pod_that_only_the_runtime_has_is_of_an_unknown_kind(make_world):
    world = make_world()
    world.program = Program(term_s=None)
    world.update("file", "ADD", STATIC)
    world.clock.advance(5)
    del world.wanted["file"][STATIC.metadata.uid]
    world.kill()
    world.clock.advance(5)
    assert gauges(world) == [{("terminating", "runtime_only", "unknown"): 1}, {}, {}]


def ends() -> dict[Labels, float]:
    return {labels: value for labels, (value,) in metrics.TERMINATED_CONTAINERS.take().items()}


@pytest.mark.parametrize("after_s", [0.0, 0.02, 3.0])
def test_each_end_of_a_container_is_counted_once(make_world, after_s):
    world = make_world(static=False)
    world.program = Program(exits=139, after_s=after_s)
    world.update("api", "ADD", specs.api_pod({"containers": [ONE], "restartPolicy": "Never"}, 1))
    world.clock.advance(200)
    (labels,) = ends()
    assert labels[:2] == ("container", "139")
    assert ends() == {labels: 1}


def test_restarts_and_init_containers_are_counted_one_by_one(make_world):
    world = make_world(static=False)
    world.program = Program(exits=1, after_s=0.0)
    world.update("api", "ADD", specs.api_pod({"containers": [ONE], "initContainers": [ONE | {"name": "i"}]}, 1))
    world.clock.advance(40)
    counts = {labels[:2]: value for labels, value in ends().items()}
    begun = sum(one.name == "a" for one in world.runtime.containers.values())
    assert counts == {("init_container", "0"): 1, ("container", "1"): begun}
    assert begun > 1


def test_ends_of_a_former_process_are_not_counted_again(make_world):
    world = make_world(static=False)
    world.program = Program(exits=1, after_s=0.0)
    world.update("api", "ADD", specs.api_pod({"containers": [ONE, ONE | {"name": "b"}], "restartPolicy": "Never"}, 1))
    world.programs["b"] = Program(exits=0, after_s=30)
    world.clock.advance(5)
    metrics.REGISTRY.clear()
    world.kill()
    world.clock.advance(5)
    assert ends() == {}
    world.clock.advance(60)
    assert [labels[:2] for labels in ends()] == [("container", "0")]


STARTED = metrics.STARTED_PODS, metrics.STARTED_PODS_ERRORS
USERNS = metrics.STARTED_USERNS_PODS, metrics.STARTED_USERNS_PODS_ERRORS
CALLS = metrics.SANDBOX_ERRORS


def total(counter: Counter) -> float:
    return sum(value for (value,) in counter.take().values())


@pytest.mark.parametrize(
    ("spec", "program", "fault", "supported", "started", "userns", "calls"),
    [
        pytest.param({}, Program(), "", True, (1, 0), (0, 0), 0, id="runs"),
        pytest.param({"hostUsers": False}, Program(), "", True, (1, 0), (1, 0), 0, id="runs with its own users"),
        pytest.param({"hostUsers": False}, Program(), "", False, (1, 1), (1, 1), 0, id="no configuration"),
        pytest.param({}, Program(), "fails", True, (1, 1), (0, 0), 1, id="no sandbox"),
        pytest.param({"hostUsers": False}, Program(), "fails", True, (1, 1), (1, 1), 1, id="no sandbox, own users"),
        pytest.param({"hostUsers": False}, Program(), "down", True, (1, 1), (1, 1), 1, id="no runtime, own users"),
        pytest.param({}, Program(cannot_start=True), "", True, (1, 0), (0, 0), 0, id="no container"),
        pytest.param(
            {"hostUsers": False}, Program(cannot_start=True), "", True, (1, 0), (1, 1), 0, id="no container, own users"
        ),
    ],
)
def test_failed_starts_of_pods_are_counted(
    make_world: Any,
    spec: dict[str, Any],
    program: Program,
    fault: Fault,
    supported: bool,
    started: tuple[int, int],
    userns: tuple[int, int],
    calls: int,
) -> None:
    world = make_world(static=False)
    world.program = program
    world.faults["RunPodSandbox"] = [fault]
    world.clock.advance(1)
    world.process.actor.context.userns.handlers = {"": supported}
    world.update("api", "ADD", specs.api_pod({"containers": [ONE], **spec}, 1))
    world.clock.advance(0.2)  # the first step is over, the next has not begun
    assert tuple(map(total, STARTED)) == started
    assert tuple(map(total, USERNS)) == userns
    assert total(CALLS) == calls
