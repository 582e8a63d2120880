"""Ends, evictions and their grace periods: bugs that the model of one pod found, as examples."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from actors._base.messaging import waits
from actors._host import other_agent
from actors._host.files import checkpoint
from actors.pod_workers.worker import PUBLISH_ENDED_S
from proto.pods.pod_workers import (
    EvictPod,
    ListPodWorkers,
    PodHealth,
    PodUpdate,
    SetNodePressure,
    SetResourceHealth,
)
from proto.v1 import PodStatus
from proto.v1.status import ResourceHealth, ResourceStatus
from tests.model import specs
from tests.model.examples.example_pods import PLAIN, UID, shown
from tests.model.goals import explain, settle


def test_an_ended_pod_shows_the_last_health_of_its_devices(make_world):
    """resources frees the devices at the pod's end and tells their health no more."""
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod({**PLAIN, "restartPolicy": "Never"}, 1))
    world.clock.advance(5)
    sick = (ResourceStatus(name="a.test/gpu", resources=(ResourceHealth(resource_id="d0", health="Unhealthy"),)),)
    held = SetResourceHealth(pods=(PodHealth(pod_uid=UID, containers={"a": sick}),), full=True)
    world.tell_pod_workers("resources", held)
    world.clock.advance(1)
    assert shown(world).allocated_resources_status == sick
    (container,) = world.running()
    world.runtime.end(container, 0)
    world.clock.advance(5)
    world.tell_pod_workers("resources", SetResourceHealth(pods=(PodHealth(pod_uid=UID),)))
    world.clock.advance(5)
    assert (shown(world).state.terminated.exit_code, shown(world).allocated_resources_status) == (0, sick)
    world.kill()
    world.tell_pod_workers("resources", SetResourceHealth(full=True))
    world.clock.advance(30)
    assert shown(world).allocated_resources_status == sick, explain(world)
    settle(world)


def test_pod_removed_while_down_is_published_until_it_ended(make_world):
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "terminationGracePeriodSeconds": 30}, 1)
    world.program = type(world.program)(term_s=None)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.kill()
    world.update("api", "REMOVE", pod)
    for _ in range(100):
        world.clock.advance(0.25)
        assert world.running(), explain(world)
        assert UID in world.pods()
    settle(world)


def test_volumes_of_an_orphan_go_with_its_end(make_world):
    """Its object is made of the runtime's labels, which name no volumes."""
    world = make_world()
    pod = specs.static_pod({**PLAIN, "volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 3})
    world.update("file", "ADD", pod)
    world.clock.advance(5)
    assert world.peers["volume"].mounted == {pod.metadata.uid}
    world.kill()
    world.update("file", "REMOVE", pod)
    world.clock.advance(15)
    assert not world.running()
    assert not world.peers["volume"].mounted, "the next pass of container_gc is not waited for"
    settle(world)


@pytest.mark.parametrize("restart_policy", ["Always", "OnFailure", "Never"])
def test_a_pod_deleted_before_it_began_has_failed(make_world, restart_policy):
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "restartPolicy": restart_policy}, 1)
    world.update("api", "ADD", pod)
    world.update("api", "DELETE", specs.with_deletion(pod, 1))
    settle(world)
    assert world.pods()[UID].status.phase == "Failed"
    assert shown(world).state.terminated.reason == "ContainerStatusUnknown"


def test_pod_may_be_removed_before_all_sources_are_seen(make_world):
    """It has no worker yet, and a SET of its source removes it."""
    world = make_world(static=False)
    pod = specs.api_pod(PLAIN, 1)
    world.kill()
    world.clock.advance(0.1)
    actor = world.process.actor
    actor.desired.seen.discard("file")
    for pods in ((pod,), ()):
        world.tell_pod_workers("config", PodUpdate(source="api", op="SET", pods=pods))
        world.clock.advance(0.1)
    world.tell_pod_workers("config", PodUpdate(source="file", op="SET", pods=()))
    settle(world)


@pytest.mark.parametrize(
    ("sleep_s", "killed_at_s", "shortened_to_s", "runs_for_s", "gone_after_s"),
    [(60, 5, 1, 0, 6), (60, 20, None, 8, 14), (8, 5, None, 20, 28)],
)
def test_kill_gives_an_ending_pod_no_new_grace(
    make_world, sleep_s, killed_at_s, shortened_to_s, runs_for_s, gone_after_s
):
    """The grace period is 30 s, and SIGTERM is ignored. The last two numbers are seconds after the kill."""
    world = make_world(static=False)
    hook = {"preStop": {"sleep": {"seconds": sleep_s}}}
    spec = {"containers": [{**PLAIN["containers"][0], "lifecycle": hook}], "terminationGracePeriodSeconds": 30}
    pod = specs.api_pod({**PLAIN, **spec}, 1)
    world.program = type(world.program)(term_s=None)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.update("api", "UPDATE", specs.with_deletion(pod, 30))
    world.clock.advance(killed_at_s)
    world.kill()
    if shortened_to_s is not None:
        world.update("api", "UPDATE", specs.with_deletion(pod, shortened_to_s))
    world.clock.advance(runs_for_s)
    assert world.running(), explain(world)
    world.clock.advance(gone_after_s - runs_for_s)
    assert not world.running(), explain(world)


def test_kill_gives_an_evicted_pod_no_shorter_grace(make_world):
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "terminationGracePeriodSeconds": 30}, 1)
    world.program = type(world.program)(term_s=None)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    eviction = EvictPod(pod_uid=UID, grace_period_s=20, reason="Evicted", message="short of memory")
    world.tell_pod_workers("eviction", eviction)
    world.clock.advance(5)
    world.kill()
    world.clock.advance(10)
    assert world.running(), explain(world)
    world.clock.advance(10)
    assert not world.running(), explain(world)


def test_an_ended_pod_is_published_before_it_counts_as_ended(make_world):
    """At a machine's shutdown the node actor waits for the stage, then for the statuses."""
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    world.clock.advance(5)
    worker = world.process.actor.workers[UID]
    publish, stages = worker.report.publish, []

    def noting(*args):
        stages.append((worker.report.over, worker.stage))
        publish(*args)

    worker.report.publish = noting
    world.tell_pod_workers("node", EvictPod(pod_uid=UID, reason="Terminated", message="", grace_period_s=1))
    world.clock.advance(30)
    assert next(stage for over, stage in stages if over) == "terminating"


def test_an_ended_pod_is_released_once_its_volumes_are_removed(make_world):
    """The next eviction waits for that: only then is the pod's disk space free."""
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod({**PLAIN, "volumes": [{"name": "v", "emptyDir": {}}]}, 1))
    world.clock.advance(5)
    world.peers["volume"].answer_s = 10.0
    world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=1, reason="Evicted", message="disk"))
    world.clock.advance(8)

    def state():
        (one,) = world.process.actor.on_list(ListPodWorkers(uids=(UID,))).pods
        return one.stage, one.released

    assert state() == ("terminated", False)
    world.clock.advance(10)
    assert state() == ("terminated", True)


def test_an_ended_pods_changed_object_is_published_late(make_world):
    """The status write and the deletion come back as such changes, and the pod is gone soon after."""
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "terminationGracePeriodSeconds": 30}, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.update("api", "DELETE", specs.with_deletion(pod, 30))
    world.clock.advance(10)
    worker = world.process.actor.workers[UID]
    assert worker.stage == "terminated"
    world.update("api", "DELETE", specs.with_deletion(pod, 0))
    world.clock.advance(PUBLISH_ENDED_S / 2)
    assert world.pods()[UID].metadata.deletion_grace_period_seconds == 30
    world.clock.advance(PUBLISH_ENDED_S)
    assert world.pods()[UID].metadata.deletion_grace_period_seconds == 0
    world.update("api", "REMOVE", pod)
    world.clock.advance(PUBLISH_ENDED_S / 2)
    assert UID not in world.pods()


@pytest.mark.parametrize("dies_s", [None, 100.0])
def test_eviction_shortens_the_end_of_a_deleted_pod(make_world, dies_s):
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "terminationGracePeriodSeconds": 600}, 1)
    world.program = type(world.program)(term_s=dies_s)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.update("api", "DELETE", specs.with_deletion(pod, 600))
    world.clock.advance(5)
    low = "The node was low on resource: memory. "
    world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=1, reason="Evicted", message=low))
    world.clock.advance(5)
    assert not world.running(), explain(world)
    status = world.pods()[UID].status
    assert (status.phase, status.reason, status.message) == ("Failed", "Evicted", low)
    assert [one.message for one in status.conditions if one.type == "DisruptionTarget"] == [low]


def test_eviction_of_a_pod_that_has_ended_leaves_its_status(make_world):
    world = make_world(static=False)
    pod = specs.api_pod(PLAIN, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.update("api", "DELETE", specs.with_deletion(pod, 1))
    world.clock.advance(10)
    before = world.pods()[UID].status
    assert before.phase == "Succeeded"
    world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=1, reason="Evicted", message="memory"))
    world.clock.advance(10)
    assert world.pods()[UID].status == before


@pytest.mark.parametrize(("reason", "goes"), [("Evicted", True), ("Preempting", True), ("Terminated", False)])
def test_an_evicted_pods_containers_go_while_its_status_stays(make_world, reason, goes):
    """A pod that ends with the machine is not evicted."""
    world = make_world(static=False)
    world.program = type(world.program)(term_s=None)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    world.clock.advance(5)
    world.evicted.add(UID)
    world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=1, reason=reason, message="m"))
    world.clock.advance(10)
    before = world.pods()[UID].status
    assert (before.phase, before.reason) == ("Failed", reason)
    world.clock.advance(130)
    assert (not world.runtime.containers and not world.runtime.sandboxes) is goes
    assert world.pods()[UID].status == before
    world.kill()
    world.clock.advance(10)
    (one,) = world.process.actor.on_list(ListPodWorkers(uids=(UID,))).pods
    assert (one.stage, one.released, one.evicted) == ("terminated", True, goes)
    assert world.pods()[UID].status == before
    settle(world)


def test_eviction_is_known_by_the_status_after_the_checkpoint_is_lost(make_world):
    world = make_world(static=False)
    pod = specs.api_pod(PLAIN, 1)
    world.update("api", "ADD", replace(pod, status=PodStatus(phase="Failed", reason="Evicted", message="disk")))
    world.clock.advance(20)
    (one,) = world.process.actor.on_list(ListPodWorkers(uids=(UID,))).pods
    assert (one.stage, one.released, one.evicted) == ("terminated", True, True)


def test_rejected_pod_is_told_from_one_that_ends(make_world):
    world = make_world(static=False)
    world.tell_pod_workers("eviction", SetNodePressure(conditions=("DiskPressure",)))
    world.clock.advance(1)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    world.clock.advance(5)
    (one,) = world.process.actor.on_list(ListPodWorkers(uids=(UID,))).pods
    assert one.rejected
    assert not one.evicted
    assert world.pods()[UID].status.reason == "Evicted"


KILLED_AFTER_MS = [0, 1, 2, 4, 6, 10, 20, 50, 100, 300]


@pytest.mark.parametrize("killed_after_ms", KILLED_AFTER_MS)
def test_evicted_pod_never_runs_again_after_a_kill(make_world, killed_after_ms):
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod({**PLAIN, "terminationGracePeriodSeconds": 1}, 1))
    world.clock.advance(5)
    world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=1, reason="Evicted", message="memory"))
    world.clock.advance(world.message_s + killed_after_ms / 1000)
    world.kill()
    world.clock.advance(60)
    assert not world.running(), explain(world)
    assert (world.pods()[UID].status.phase, shown(world).restart_count) == ("Succeeded", 0)


@pytest.mark.parametrize("killed_after_ms", KILLED_AFTER_MS)
def test_kill_keeps_the_grace_that_an_eviction_shortened(make_world, killed_after_ms):
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "terminationGracePeriodSeconds": 600}, 1)
    world.program = type(world.program)(term_s=None)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.update("api", "DELETE", specs.with_deletion(pod, 600))
    world.clock.advance(5)
    world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=1, reason="Evicted", message="memory"))
    world.clock.advance(world.message_s + killed_after_ms / 1000)
    world.kill()
    world.clock.advance(10)
    assert not world.running(), explain(world)
    assert world.pods()[UID].status.reason == "Evicted"


def served_by_another_agent(world, uid, pod):
    """pod_workers starts anew after another agent has served the node. The server has the pod of this UID as `pod`."""
    world.kill()
    checkpoint.save(other_agent.path(world.settings.root_dir), other_agent.VERSION, "1 1")
    world.wanted["api"][uid] = world.specs[uid] = specs.with_phase(pod, "Running")


def test_deletion_after_an_old_eviction_has_its_own_grace(make_world):
    """The agent ended in the eviction. Another agent ran the pod then, and a user deleted it."""
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "terminationGracePeriodSeconds": 600}, 1)
    world.program = type(world.program)(term_s=None)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=20, reason="Evicted", message="memory"))
    world.clock.advance(1)
    served_by_another_agent(world, UID, specs.with_deletion(pod, 600))
    world.clock.advance(300)
    assert world.running(), explain(world)
    assert world.pods()[UID].status.reason is None
    world.clock.advance(310)
    assert not world.running(), explain(world)


def test_deleted_pod_of_an_old_eviction_is_not_admitted(make_world):
    """It could preempt other pods."""
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "terminationGracePeriodSeconds": 1}, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=1, reason="Evicted", message="memory"))
    world.clock.advance(20)
    assert not world.running()
    world.tell_pod_workers("eviction", SetNodePressure(conditions=("DiskPressure",)))
    served_by_another_agent(world, UID, specs.with_deletion(pod, 30))
    world.tell_pod_workers("eviction", SetNodePressure(conditions=("DiskPressure",)))
    world.clock.advance(20)
    assert world.process.actor.admission_queue.rejected == {}
    assert world.process.actor.workers[UID].stage == "terminated"


HOOKED = {
    "containers": [{**PLAIN["containers"][0], "lifecycle": {"preStop": {"exec": {"command": ["hook"]}}}}],
    "terminationGracePeriodSeconds": 30,
    "restartPolicy": "Always",
}


@pytest.fixture
def hooks(monkeypatch):
    """Times of preStop hooks that ran."""
    ran = []

    def count(world):
        monkeypatch.setattr(world.runtime, "commands", lambda _: ran.append(world.clock.now) or 0)
        return ran

    return count


@pytest.mark.parametrize("wanted_again", ["while it is down", "before the kill"])
def test_end_that_was_taken_back_leaves_the_next_its_grace_and_hook(make_world, hooks, wanted_again):
    world = make_world()
    ran = hooks(world)
    world.program = type(world.program)(term_s=3.0)
    pod = specs.static_pod(HOOKED)
    world.update("file", "ADD", pod)
    world.clock.advance(5)
    world.update("file", "REMOVE", pod)
    world.clock.advance(1)
    if wanted_again == "before the kill":
        world.update("file", "ADD", pod)
        world.clock.advance(1)
    world.kill()
    if wanted_again == "while it is down":
        world.update("file", "ADD", pod)
    world.clock.advance(600)
    (container,) = world.running()
    before = len(ran)
    world.update("file", "REMOVE", pod)
    world.clock.advance(60)
    assert (container.exit_code, len(ran) - before) == (0, 1), explain(world)


@pytest.mark.parametrize("cause", ["removed", "deadline", "evicted"])
def test_pod_with_no_grace_period_ends_with_its_hook(make_world, hooks, cause):
    """As in the kubelet, the end of a pod has a second at least."""
    world = make_world(static=cause == "removed")
    ran = hooks(world)
    spec = {**HOOKED, "terminationGracePeriodSeconds": 0}
    if cause == "deadline":
        spec["activeDeadlineSeconds"] = 5
    pod = specs.static_pod(spec) if cause == "removed" else specs.api_pod(spec, 1)
    source = "file" if cause == "removed" else "api"
    world.update(source, "ADD", pod)
    world.clock.advance(3)
    if cause == "removed":
        world.update(source, "REMOVE", pod)
    elif cause == "evicted":
        world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=0, reason="Evicted", message="memory"))
    world.clock.advance(30)
    assert (world.running(), len(ran)) == ([], 1), explain(world)


def test_wait_for_a_prestop_hook_has_the_time_that_is_left(make_world, monkeypatch):
    world = make_world(static=False)
    recorded = []

    @contextmanager
    def waiting(kind, target, what, **fields):
        recorded.append((what, world.clock.now, fields))
        yield

    monkeypatch.setattr(waits, "waiting", waiting)
    container = {**PLAIN["containers"][0], "lifecycle": {"preStop": {"sleep": {"seconds": 300}}}}
    pod = specs.api_pod({**PLAIN, "containers": [container], "terminationGracePeriodSeconds": 60}, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.update("api", "DELETE", specs.with_deletion(pod, 60))
    world.clock.advance(10)
    world.tell_pod_workers("eviction", EvictPod(pod_uid=UID, grace_period_s=20, reason="Evicted", message="memory"))
    world.clock.advance(5)
    hooks = [(now, fields) for what, now, fields in recorded if what == "preStop hook of container a"]
    assert [round(fields["timeout_s"]) for _, fields in hooks] == [60, 20], "the second is of the shorter grace period"
    assert hooks[1][1]["since"] == hooks[0][1]["since"], "the hook has run since then"
    world.clock.advance(60)
    assert not world.running(), explain(world)


@pytest.mark.parametrize("cause", ["liveness", "image"])
def test_kill_gives_a_container_that_ends_alone_no_new_grace_or_hook(make_world, hooks, cause):
    world = make_world(static=False)
    ran = hooks(world)
    world.program = type(world.program)(term_s=None)
    container = {**HOOKED["containers"][0], "livenessProbe": {"httpGet": {"port": 80}}}
    pod = specs.api_pod({**HOOKED, "containers": [container]}, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    (first,) = world.running()
    if cause == "liveness":
        world.health["a", "liveness"] = False
        world.peers["probe"].look()
    else:
        world.update("api", "UPDATE", specs.with_image(pod, "image:2"))
    world.clock.advance(12)
    world.kill()
    world.clock.advance(12)
    world.kill()
    world.clock.advance(4)
    assert (first.running, len(ran)) == (True, 1), explain(world)
    world.clock.advance(5)
    assert not first.running, explain(world)


def test_a_refused_stop_leaves_the_other_ends_their_way(make_world):
    """The sidecar has its grace period, and then the sandbox is stopped, with the container that is left."""
    world = make_world(static=False)
    world.programs.clear()
    sidecar = {"name": "i", "image": "image:1", "restartPolicy": "Always"}
    pod = specs.api_pod({**PLAIN, "initContainers": [sidecar], "terminationGracePeriodSeconds": 5}, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    first, second = sorted(world.running(), key=lambda one: one.name)
    world.faults["StopContainer"] = ["fails"]
    world.update("api", "UPDATE", specs.with_deletion(pod, 5))
    world.clock.advance(4.9)
    assert (first.running, second.running) == (True, True), explain(world)
    world.clock.advance(0.3)
    assert [one.ready for one in world.runtime.sandboxes.values()] == [False], explain(world)
    assert (first.exit_code, second.exit_code) == (137, 0), explain(world)
    settle(world)


def test_a_stop_answered_before_the_exit_is_recorded_is_waited_for(make_world):
    """Else StopPodSandbox would kill a container whose own exit is about to be recorded."""
    world = make_world(static=False)
    pod = specs.api_pod(PLAIN, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    container = world.running()[0]
    world.faults["StopContainer"] = ["early"]
    world.update("api", "UPDATE", specs.with_deletion(pod, 5))
    world.clock.advance(5)
    assert (container.running, container.exit_code) == (False, 0), explain(world)
    settle(world)


def test_a_pod_ends_where_each_stop_is_refused(make_world):
    world = make_world(static=False)
    pod = specs.api_pod(PLAIN, 1)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    world.faults["StopContainer"] = ["fails"] * 1000
    world.update("api", "UPDATE", specs.with_deletion(pod, 1))
    world.clock.advance(30)
    assert not world.running(), explain(world)
    assert world.pods()[UID].status.phase == "Failed"
    settle(world)
