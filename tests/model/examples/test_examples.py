"""Bugs that the model of one pod found, as examples."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from actors._host import other_agent
from actors._host.files import checkpoint
from actors.pod_workers import actor, address_search
from actors.pod_workers.worker import PUBLISH_ENDED_S
from proto.pods.pod_workers import (
    EvictPod,
    ListPodWorkers,
    PodHealth,
    PodUpdate,
    SetHostIPs,
    SetNodePressure,
    SetResourceHealth,
)
from proto.pods.volume import LIMIT_EXCEEDED
from proto.v1 import PodStatus
from proto.v1.status import ResourceHealth, ResourceStatus
from proto.wire.errors import Refused
from tests.model import specs
from tests.model.cri import calls
from tests.model.cri.calls import LATE_S
from tests.model.goals import explain, settle

PLAIN = {"containers": [{"name": "a", "image": "image:1"}], "restartPolicy": "Always"}
UID = specs.api_pod(PLAIN, 1).metadata.uid


def shown(world, name="a"):
    return next(one for one in world.pods()[UID].status.container_statuses if one.name == name)


def test_addresses_of_the_node_reach_running_pods(make_world):
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod({**PLAIN, "hostNetwork": True}, 1))
    world.clock.advance(5)
    assert world.pods()[UID].status.host_ip == "192.168.0.9"
    world.tell_pod_workers("node", SetHostIPs(ips=("203.0.113.9", "fd00::9")))
    world.clock.advance(1)
    status = world.pods()[UID].status
    assert [one.ip for one in status.host_ips] == ["203.0.113.9", "fd00::9"]
    assert [one.ip for one in status.pod_ips] == ["192.168.0.9", "fd00::9"], "the first one stays"
    settle(world)


@pytest.mark.parametrize(("together", "told"), [(False, 6), (True, 1)])
def test_images_are_expected_for_lone_starts_only(make_world, together, told):
    """In a mass start the messages would only cost time."""
    world = make_world(static=False)
    for number in range(6):
        world.update("api", "ADD", specs.api_pod(PLAIN, number))
        if not together:
            world.clock.advance(5)
    world.clock.advance(5)
    assert len(world.running()) == 6
    assert len(world.peers["image_pull"].expected) == told
    settle(world)


def test_a_start_in_the_model_starts_no_thread(make_world):
    before = set(threading.enumerate())
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    world.clock.advance(5)
    assert world.running()
    assert set(threading.enumerate()) <= before
    settle(world)


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


def test_address_that_comes_after_the_start_reaches_pods(make_world, monkeypatch):
    found = ["127.0.0.1"]
    for module in (actor, address_search):
        monkeypatch.setattr(module, "find_host_ips", lambda _: tuple(found))
    world = make_world()
    world.update("file", "ADD", specs.static_pod({**PLAIN, "hostNetwork": True}))
    world.clock.advance(5)
    (before,) = world.pods().values()
    assert (before.status.host_ip, before.status.pod_ip) == ("127.0.0.1", "127.0.0.1")
    found[:] = ["203.0.113.9"]
    world.clock.advance(address_search.ADDRESS_S + 1)
    (after,) = world.pods().values()
    assert (after.status.host_ip, after.status.pod_ip) == ("203.0.113.9", "203.0.113.9")
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


def test_sandbox_created_after_its_pod_ended_is_ended(make_world):
    """The call that created it was abandoned at the deadline and took effect later."""
    world = make_world(static=False)
    world.faults["RunPodSandbox"] = ["late"]
    world.update("api", "ADD", specs.api_pod({**PLAIN, "activeDeadlineSeconds": 1}, 1))
    world.clock.advance(200)
    assert world.pods()[UID].status.phase == "Failed"
    settle(world)
    assert [one.ready for one in world.runtime.sandboxes.values()] == [False]


@pytest.mark.parametrize("effect_s", [number / 500 for number in range(24)])
def test_start_that_a_kill_cut_off_and_that_took_effect_is_the_only_one(make_world, monkeypatch, effect_s):
    """The runtime completes the call while the next process lists its containers and prepares its step, 46 ms here."""
    world, started = make_world(static=False), []
    start = world.runtime.StartContainer

    def counted(request):
        answer = start(request)
        started.append(request.container_id)
        return answer

    monkeypatch.setattr(world.runtime, "StartContainer", counted)
    monkeypatch.setattr(calls, "LATE_S", 5.0 + effect_s)
    world.faults["StartContainer"] = ["late"]
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    while world.faults["StartContainer"]:
        world.clock.advance(0.001)
    world.clock.advance(4.99)
    world.kill()
    world.clock.advance(30)
    assert shown(world).state.running
    assert len(started) == 1


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


@pytest.mark.parametrize("restart_policy", ["Always", "OnFailure", "Never"])
def test_a_pod_deleted_before_it_began_has_failed(make_world, restart_policy):
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "restartPolicy": restart_policy}, 1)
    world.update("api", "ADD", pod)
    world.update("api", "DELETE", specs.with_deletion(pod, 1))
    settle(world)
    assert world.pods()[UID].status.phase == "Failed"
    assert shown(world).state.terminated.reason == "ContainerStatusUnknown"


@pytest.mark.parametrize(("ready", "sent"), [(False, {2, 3}), (True, {0})])
def test_each_sync_has_unready_containers_probed(make_world, ready, sent):
    world = make_world(static=False)
    world.programs.clear()
    world.health["a", "readiness"] = ready
    container = PLAIN["containers"][0] | {"readinessProbe": specs.PROBE, "startupProbe": specs.PROBE}
    world.update("api", "ADD", specs.api_pod({**PLAIN, "containers": [container]}, 1))
    world.clock.advance(10)
    assert shown(world).ready is ready
    before = world.peers["probe"].told
    world.clock.advance(world.settings.sync_frequency_s * 3)
    assert world.peers["probe"].told - before in sent
    settle(world)


def test_only_a_pod_with_work_asks_for_the_network(make_world):
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    settle(world)
    before = world.peers["pleg"].relayed
    world.clock.advance(world.settings.sync_frequency_s * 3)
    assert world.peers["pleg"].relayed == before
    world.remove(next(one.id for one in world.running()))
    settle(world)
    assert world.peers["pleg"].relayed > before


def test_pods_wait_for_the_network_where_they_have_work(make_world):
    world = make_world(static=False)
    pods = [specs.api_pod(PLAIN, number) for number in range(2)]
    world.update("api", "ADD", pods[0])
    world.clock.advance(10)
    world.runtime.has_network = False
    world.clock.advance(10)
    world.update("api", "ADD", pods[1])
    world.clock.advance(world.settings.sync_frequency_s * 3)
    running = world.running()
    assert [one.sandbox.config.metadata.uid for one in running] == [pods[0].metadata.uid]
    world.remove(running[0].id)
    world.clock.advance(20)
    assert world.running() == [], "nothing is restarted"
    world.runtime.has_network = True
    settle(world)
    assert len(world.running()) == 2


def test_sidecar_failing_startup_blocks_later_starts(make_world):
    world = make_world(static=False)
    sidecar = {"name": "i", "image": "image:1", "restartPolicy": "Always", "startupProbe": specs.PROBE}
    world.programs.clear()
    world.health["i", "startup"] = False
    world.update("api", "ADD", specs.api_pod({**PLAIN, "initContainers": [sidecar]}, 1))
    for _ in range(100):
        world.clock.advance(1)
        assert {one.name for one in world.running()} <= {"i"}
        world.check()
    settle(world)


def test_checks_find_violations(make_world):
    """Tests the checks: a second instance, an unwanted pod, a phase that goes back."""
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    world.clock.advance(5)
    container = world.running()[0]
    world.invariants.started(container)
    world.invariants.published(specs.with_phase(world.pods()[UID], "Failed"))
    world.invariants.published(world.pods()[UID])
    world.invariants.forgotten(UID)
    world.invariants.unmounted(UID)
    kinds = [text.partition(": ")[2].split(" ")[0] for text in world.invariants.broken]
    assert kinds == ["phase", "the", "volumes"]
    world.invariants.broken.clear()
    world.wanted["api"].clear()
    with pytest.raises(AssertionError, match="unwanted"):
        settle(world)


def test_sandbox_removed_during_container_start_is_recreated(make_world):
    world = make_world(static=False)
    world.update("api", "ADD", specs.api_pod(PLAIN, 1))
    for _ in range(3):
        while not world.runtime.sandboxes:
            world.clock.step()
        world.remove(next(iter(world.runtime.sandboxes)))
    settle(world)


def test_manifest_changed_while_down_starts_after_old_pod_ended(make_world):
    world = make_world()
    slow = {**PLAIN, "containers": [{**PLAIN["containers"][0], "lifecycle": {"preStop": {"sleep": {"seconds": 3}}}}]}
    old, new = specs.static_pod(slow), specs.static_pod(PLAIN)
    world.update("file", "ADD", old)
    world.clock.advance(5)
    world.kill()
    world.update("file", "REMOVE", old)
    world.update("file", "ADD", new)
    for _ in range(50):
        world.clock.advance(0.1)
        world.check()
    settle(world)
    assert [one.sandbox.uid for one in world.running()] == [new.metadata.uid]


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


def test_running_static_pod_goes_on_beside_orphan_of_its_name(make_world):
    world = make_world()
    old, new = specs.static_pod({**PLAIN, "terminationGracePeriodSeconds": 1}), specs.static_pod(PLAIN)
    world.faults["RunPodSandbox"] = ["late"]
    world.update("file", "ADD", old)
    world.clock.advance(1)
    world.update("file", "REMOVE", old)
    world.update("file", "ADD", new)
    world.clock.advance(LATE_S)  # the old pod's sandbox appears beside the new one's
    world.kill()
    uid = new.metadata.uid
    for _ in range(200):
        world.clock.advance(0.01)
        assert uid in world.pods()
        world.check()
    settle(world)
    assert world.running()[0].config.metadata.attempt == 0


def test_pod_over_the_volume_limit_fails_for_good(make_world):
    """The kubelet's VolumeAttachmentLimitExceeded: the pod's controller creates another pod, for another node."""
    world = make_world(static=False)
    pod = specs.api_pod({**PLAIN, "volumes": [{"name": "v", "emptyDir": {}}]}, 1)
    world.peers["volume"].refuses = Refused(LIMIT_EXCEEDED, "no room for v", retry=False)
    world.update("api", "ADD", pod)
    world.clock.advance(5)
    for killed in (False, True):
        if killed:
            world.kill()
            world.clock.advance(5)
        status = world.pods()[UID].status
        assert (status.phase, status.reason) == ("Failed", "VolumeAttachmentLimitExceeded")
        assert status.message == "Pod was rejected: no room for v"
    world.peers["volume"].refuses = None
    world.clock.advance(60)
    assert not world.runtime.containers
    world.check()


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
