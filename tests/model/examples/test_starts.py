"""Starts: bugs that the model of one pod found, as examples."""

from __future__ import annotations

import threading

import pytest

from actors.pod_workers import actor, address_search
from proto.pods.pod_workers import (
    SetHostIPs,
)
from proto.pods.volume import LIMIT_EXCEEDED
from proto.wire.errors import Refused
from tests.model import specs
from tests.model.cri import calls
from tests.model.cri.calls import LATE_S
from tests.model.examples.example_pods import PLAIN, UID, shown
from tests.model.goals import settle


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
    world.invariants.unmounted(UID, announced=False)
    kinds = [text.partition(": ")[2].split(" ")[0] for text in world.invariants.broken]
    assert kinds == ["phase", "the", "volumes", "volumes"]
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
