"""Resizes of running pods in the model: their order, room, refusals and ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actors._cgroup.limits import Limits
from actors._cri.errors import CriError
from actors.pod_workers.decide.resize import as_pod_limits, merged
from actors.pod_workers.resources import resize_steps
from proto.cri import api_pb2 as pb
from proto.pods.pod_workers import (
    SetNodePressure,
    SetNodeShutdown,
)
from proto.v1 import ResourceRequirements
from tests.model import specs
from tests.model.examples.example_pods import PLAIN, UID, shown
from tests.model.goals import explain


def with_limits(pod, cpu, memory):
    """With these requests and limits of the pod as a whole."""
    amounts = {"cpu": cpu, "memory": memory}
    return replace(pod, spec=replace(pod.spec, resources=ResourceRequirements(requests=amounts, limits=amounts)))


def test_a_container_without_limits_is_resized_with_its_pod(make_world):
    """Also after a resize that failed in the middle, and after a kill."""
    world = make_world(static=False)
    pod = specs.api_pod(PLAIN, 1)
    world.update("api", "ADD", with_limits(pod, "100m", "10Mi"))
    world.clock.advance(5)

    def limits():
        (container,) = world.running()
        linux = container.config.linux.resources
        return linux.cpu_quota, linux.cpu_shares, linux.memory_limit_in_bytes >> 20

    assert limits() == (10_000, 102, 10)
    world.update("api", "UPDATE", with_limits(pod, "200m", "20Mi"))
    world.clock.advance(5)
    assert limits() == (20_000, 204, 20), explain(world)
    record = world.process.actor.allocations.actuated.get(UID)
    assert record.containers["a"].limits == record.pod.limits == {"cpu": "200m", "memory": "20Mi"}
    world.faults["UpdateContainerResources"] = ["", "fails"]
    world.update("api", "UPDATE", with_limits(pod, "300m", "30Mi"))
    world.clock.advance(1)
    world.kill()
    world.clock.advance(60)
    assert limits() == (30_000, 307, 30), explain(world)
    assert shown(world).restart_count == 0


class PodCgroup:
    """Stands for the pod's cgroup, which the model has not, and notes what is written and what the runtime is told."""

    def __init__(self, world, monkeypatch):
        self.limits = Limits(102, 10_000, 100_000, 10 << 20)
        self.breaks = False
        self.refuses = None
        self.notes = []
        runtime_noted = world.runtime.UpdatePodSandboxResources

        def told(request):
            if self.refuses is not None:
                raise self.refuses
            linux = request.resources
            self.notes.append(("told", linux.cpu_quota, linux.cpu_shares, linux.memory_limit_in_bytes >> 20))
            return runtime_noted(request)

        def write(_name, limits, _driver, _tree):
            if self.breaks:
                raise OSError("it broke")
            now = merged(as_pod_limits(self.limits), limits)
            self.limits = Limits(now.cpu_shares, now.cpu_quota_us, now.cpu_period_us, now.memory_bytes)
            self.notes.append(("written", now.cpu_quota_us, now.cpu_shares, now.memory_bytes >> 20))

        monkeypatch.setattr(world.runtime, "UpdatePodSandboxResources", told)
        monkeypatch.setattr(resize_steps, "pod_cgroup_parent", lambda *_: "/pod")
        monkeypatch.setattr(resize_steps, "read_limits", lambda *_: self.limits)
        monkeypatch.setattr(resize_steps, "ensure", write)


@pytest.fixture
def resized(make_world, monkeypatch):
    """A world, the cgroup of its pod, and a function that doubles the pod's limits."""
    world = make_world(static=False)
    pod = specs.api_pod(PLAIN, 1)
    world.update("api", "ADD", with_limits(pod, "100m", "10Mi"))
    world.clock.advance(5)

    def double():
        world.update("api", "UPDATE", with_limits(pod, "200m", "20Mi"))
        world.clock.advance(0.5)

    return world, PodCgroup(world, monkeypatch), double


GROWN = [(10_000, 102, 20), (20_000, 102, 20), (20_000, 204, 20)]
"""Quota, shares and MiB after each write."""


def problem_of_resize(world):
    conditions = world.pods()[UID].status.conditions
    return next((one.message for one in conditions if one.type == "PodResizeInProgress"), "none")


def test_the_runtime_is_told_of_each_limit_before_it_is_written(resized):
    world, cgroup, double = resized
    double()
    assert cgroup.notes == [(what, *limits) for limits in GROWN for what in ("told", "written")]
    assert problem_of_resize(world) == "none", explain(world)


def test_a_runtime_may_reject_a_resize(resized):
    world, cgroup, double = resized
    cgroup.refuses = CriError.of("Unknown", "too large", "UpdatePodSandboxResources")
    double()
    (sandbox,) = world.runtime.sandboxes
    assert problem_of_resize(world) == (
        "failed to notify runtime for UpdatePodSandboxResources (resource=memory); resize rejected: "
        f'updatePodSandboxResources failed for sanboxID "{sandbox}": rpc error: code = Unknown desc = too large'
    )
    assert cgroup.notes == []
    cgroup.refuses = None
    world.clock.advance(120)
    assert problem_of_resize(world) == "none", explain(world)


def test_a_rejected_shrink_is_not_reported_as_completed(make_world, monkeypatch):
    """The containers shrink before the pod's cgroup, so they do not tell that it is left."""
    world = make_world(static=False)

    def pod(cpu, memory):
        amounts = {"cpu": cpu, "memory": memory}
        own = {"name": "a", "image": "image:1", "resources": {"requests": amounts, "limits": amounts}}
        return specs.api_pod({**PLAIN, "containers": [own]}, 1)

    world.update("api", "ADD", pod("100m", "10Mi"))
    world.clock.advance(5)
    cgroup = PodCgroup(world, monkeypatch)
    monkeypatch.setattr(world.runtime, "ContainerStats", lambda _: pb.ContainerStatsResponse(), raising=False)
    monkeypatch.setattr(resize_steps, "usage", lambda _: None)
    cgroup.refuses = CriError.of("Unknown", "not now", "UpdatePodSandboxResources")
    world.update("api", "UPDATE", pod("50m", "5Mi"))
    world.clock.advance(30)
    assert "not now" in problem_of_resize(world), explain(world)
    assert cgroup.notes == []
    cgroup.refuses = None
    world.clock.advance(120)
    assert problem_of_resize(world) == "none", explain(world)
    assert cgroup.notes[-1] == ("written", 5_000, 51, 5)


def asking(number, milli_cpu, **spec):
    """Pod 1 or 2 of the API, with one container `a` or `b` that requests so much."""
    own = {"name": "ab"[number - 1], "image": "image:1", "resources": {"requests": {"cpu": f"{milli_cpu}m"}}}
    pod = specs.api_pod({**PLAIN, "containers": [own], **spec}, number)
    return replace(pod, metadata=replace(pod.metadata, name=f"web-{number}"))


def cpu_shares(world):
    """By the name of a running container."""
    return {one.config.metadata.name: one.config.linux.resources.cpu_shares for one in world.running()}


def whole_cpu(world):
    """Milli CPUs that pods may request."""
    return world.process.actor.admission_queue.node.allocatable["cpu"]


def test_room_of_a_pod_that_is_to_shrink_is_its_own_until_then(make_world):
    """Also after a kill. The deferred resize of another pod follows at once."""
    world = make_world(static=False)
    whole = whole_cpu(world)
    for one in (asking(1, whole - 200), asking(2, 100)):
        world.update("api", "ADD", one)
    world.clock.advance(5)
    large, small = cpu_shares(world)["a"], cpu_shares(world)["b"]
    world.faults["UpdateContainerResources"] = ["fails"] * 20
    for one in (asking(1, 100), asking(2, 500)):
        world.update("api", "UPDATE", one)
    world.clock.advance(30)
    assert cpu_shares(world) == {"a": large, "b": small}
    pending = world.process.actor.allocations.allocator.pending[asking(2, 500).metadata.uid]
    assert (pending.reason, f"used: {whole - 200}," in pending.message) == ("Deferred", True)
    world.kill()
    world.clock.advance(20)
    assert cpu_shares(world) == {"a": large, "b": small}
    world.faults["UpdateContainerResources"] = []
    world.clock.advance(20)  # the failed resize is tried again every 10 s, a deferred one every 3 minutes
    assert cpu_shares(world) == {"a": small, "b": 512}, explain(world)
    assert world.process.actor.allocations.allocator.pending == {}


def test_a_resize_under_pressure_begins_when_the_pressure_ends(make_world):
    world = make_world(static=False)
    world.update("api", "ADD", asking(1, 100))
    world.clock.advance(5)
    world.tell_pod_workers("eviction", SetNodePressure(conditions=("DiskPressure",)))
    world.clock.advance(1)
    world.update("api", "UPDATE", asking(1, 500))
    world.clock.advance(20)
    assert cpu_shares(world) == {"a": 102}
    (pending,) = world.process.actor.allocations.allocator.pending.values()
    assert (pending.reason, pending.message) == ("Deferred", "The node had condition: [DiskPressure]. ")
    world.tell_pod_workers("eviction", SetNodePressure(conditions=()))
    world.clock.advance(5)
    assert cpu_shares(world) == {"a": 512}, explain(world)


def test_a_critical_pod_ends_others_for_its_resize(make_world):
    world = make_world(static=False)
    whole = whole_cpu(world)
    for one in (asking(1, 100, priority=2_000_000_000), asking(2, whole - 100)):
        world.update("api", "ADD", one)
    world.clock.advance(5)
    world.update("api", "UPDATE", asking(1, 500, priority=2_000_000_000))
    world.clock.advance(60)
    assert cpu_shares(world) == {"a": 512}, explain(world)
    rejected = world.process.actor.admission_queue.rejected
    assert {uid: reason for uid, (reason, _) in rejected.items()} == {asking(2, 100).metadata.uid: "Preempting"}


def test_a_critical_pod_that_is_deleted_ends_no_others(make_world):
    """Its resize and its deletion may come in one update."""
    world = make_world(static=False)
    whole = whole_cpu(world)
    for one in (asking(1, 100, priority=2_000_000_000), asking(2, whole - 100)):
        world.update("api", "ADD", one)
    world.clock.advance(5)
    world.update("api", "DELETE", specs.with_deletion(asking(1, 500, priority=2_000_000_000), 30))
    world.clock.advance(60)
    assert list(cpu_shares(world)) == ["b"], explain(world)


def test_a_critical_pod_that_has_ended_ends_no_others(make_world):
    """Its resize waited while the machine shut down. The next process has not looked at the pod yet."""
    world = make_world(static=False)
    whole, once = whole_cpu(world), {"priority": 2_000_000_000, "restartPolicy": "Never"}
    for one in (asking(1, 100, **once), asking(2, whole - 100)):
        world.update("api", "ADD", one)
    world.clock.advance(5)
    world.tell_pod_workers("node", SetNodeShutdown(shutting_down=True))
    world.clock.advance(1)
    world.update("api", "UPDATE", asking(1, 500, **once))
    world.clock.advance(1)
    (first,) = (container for container in world.running() if container.config.metadata.name == "a")
    world.runtime.end(first, 0)
    world.clock.advance(20)
    assert world.pods()[UID].status.phase == "Succeeded"
    world.kill()
    world.clock.advance(60)
    assert list(cpu_shares(world)) == ["b"], explain(world)


def test_a_resize_during_a_long_step_is_completed_once(make_world):
    """The step began with the former resources, which its containers have."""
    world = make_world(static=False)
    told = []
    world.peers["events"].tell = told.append

    def pod(milli_cpu, generation):
        first = {"name": "a", "image": "image:1", "resources": {"requests": {"cpu": f"{milli_cpu}m"}}}
        made = specs.api_pod({**PLAIN, "containers": [first, {"name": "b", "image": "image:2"}]}, 1)
        return replace(made, metadata=replace(made.metadata, generation=generation))

    world.peers["image_pull"].answer_s = 10.0
    world.update("api", "ADD", pod(100, 1))
    world.clock.advance(12)
    assert cpu_shares(world) == {"a": 102}, "b waits for its image"
    world.update("api", "UPDATE", pod(200, 2))
    world.clock.advance(20)
    assert cpu_shares(world)["a"] == 204, explain(world)
    (completed,) = (one.message for one in told if getattr(one, "reason", "") == "ResizeCompleted")
    assert '"cpu":"200m"' in completed


def test_a_deferred_resize_that_is_granted_during_a_long_step_is_completed_once(make_world):
    """Its generation is that of the step, which began with the former resources."""
    world = make_world(static=False)
    whole, told = whole_cpu(world), []
    world.peers["events"].tell = told.append

    def pod(milli_cpu, generation):
        first = {"name": "a", "image": "image:1", "resources": {"requests": {"cpu": f"{milli_cpu}m"}}}
        made = specs.api_pod({**PLAIN, "containers": [first, {"name": "c", "image": "image:2"}]}, 1)
        return replace(made, metadata=replace(made.metadata, generation=generation))

    for one in (pod(100, 1), asking(2, whole - 100)):
        world.update("api", "ADD", one)
    world.clock.advance(5)
    world.update("api", "UPDATE", pod(200, 2))
    world.clock.advance(5)
    assert cpu_shares(world)["a"] == 102, "deferred"
    world.peers["image_pull"].answer_s = 20.0
    (second,) = (one for one in world.running() if one.config.metadata.name == "c")
    world.runtime.end(second, 1)
    world.clock.advance(3)
    world.update("api", "DELETE", specs.with_deletion(asking(2, whole - 100), 1))
    world.clock.advance(60)
    assert cpu_shares(world)["a"] == 204, explain(world)
    (completed,) = (one.message for one in told if getattr(one, "reason", "") == "ResizeCompleted")
    assert '"cpu":"200m"' in completed


@pytest.mark.parametrize(
    ("code", "details"), [("Unimplemented", "unknown method"), ("Unknown", "method is not implemented yet")]
)
def test_a_runtime_that_cannot_be_told_keeps_no_pod_from_a_resize(resized, code, details):
    world, cgroup, double = resized
    cgroup.refuses = CriError.of(code, details, "UpdatePodSandboxResources")
    double()
    assert cgroup.notes == [("written", *limits) for limits in GROWN]
    assert problem_of_resize(world) == "none", explain(world)


def test_limits_that_are_not_written_are_taken_back(resized):
    world, cgroup, double = resized
    cgroup.breaks = True
    double()
    assert cgroup.notes[:2] == [("told", 10_000, 102, 20), ("told", 10_000, 102, 10)]
    assert problem_of_resize(world) == "it broke"


def test_resize_waits_for_the_network(make_world):
    world = make_world(static=False)
    pod = specs.api_pod(PLAIN, 1)
    world.update("api", "ADD", with_limits(pod, "100m", "10Mi"))
    world.clock.advance(10)
    world.runtime.has_network = False
    world.clock.advance(10)
    world.update("api", "UPDATE", with_limits(pod, "200m", "20Mi"))
    world.clock.advance(20)

    def quota():
        (container,) = world.running()
        return container.config.linux.resources.cpu_quota

    assert quota() == 10_000
    world.runtime.has_network = True
    world.clock.advance(20)
    assert quota() == 20_000, explain(world)
