"""Evictions by the node's pressure: which pod goes, when, and what a reclaim saves."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from actors._host.machine import memory_capacity
from actors.eviction.policy import HARD_GRACE_PERIOD_S
from proto.node.container_gc import Collected as CollectedContainers
from proto.node.container_gc import CollectGarbage
from proto.node.eviction import PlanEviction, Pressure
from proto.node.image_gc import Collected as CollectedImages
from proto.node.image_gc import DeleteUnusedImages
from proto.node.stats import GetNodeStats, GetPodUsages, NodeStats
from proto.pods.pod_workers import EvictPod
from proto.wire.errors import ProtocolError, Refused
from tests.eviction.fake_node import GIB, FakeNode, pass_looks
from tests.harness import wait_for


def test_a_node_with_enough_of_everything_is_left_alone(fake: FakeNode) -> None:
    wait_for(lambda: fake.pressure().signals, 10, "the first look")
    pressure = fake.pressure()
    assert pressure.conditions == ()
    assert [(one.signal, one.threshold, one.met) for one in pressure.signals] == [
        ("memory.available", GIB, False),
        ("nodefs.available", 10737418400, False),  # a percentage is a 32 bit float, as in the kubelet
        ("containerfs.available", 10737418400, False),
    ]
    wait_for(lambda: fake.told() == [()], 10, "the pod workers are told once, when they are seen")
    assert fake.order == []
    words = ("NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID")
    said = [("Node", "Normal", word, f"Node node status is now: {word}") for word in words]
    wait_for(lambda: fake.events() == said, 10, "and so are the events")


def test_largest_pod_goes_and_the_next_only_after_its_clean_up(fake: FakeNode) -> None:
    fake.pod("a", 1 * GIB)
    fake.pod("b", 5 * GIB)
    fake.pod("static", 9 * GIB, source="file")
    fake.pod("critical", 9 * GIB, priority=2_000_000_000)
    fake.memory_available = GIB // 2
    wait_for(fake.evictions, 10, "an eviction")
    first = fake.evictions()[0]
    assert (first.pod_uid, first.reason, first.grace_period_s) == ("b", "Evicted", 1)
    assert first.message == "The node was low on resource: memory. Threshold quantity: 1Gi, available: 512Mi. "
    wait_for(lambda: ("MemoryPressure",) in fake.told(), 10, "the pod workers know")
    for stage in ("terminating", "terminated"):  # until its volumes are removed, too
        fake.stage("b", stage)
        looks = fake.looks()
        wait_for(lambda looks=looks: fake.looks() >= looks + 2, 10, "it looks at b again")
        assert len(fake.evictions()) == 1
    fake.stage("b", "terminated", released=True)
    wait_for(lambda: len(fake.evictions()) == 2, 10, "the next, since memory is still short")
    assert fake.evictions()[1].pod_uid == "a"
    fake.stage("a", "terminated", released=True)
    fake.memory_available = 8 * GIB
    wait_for(lambda: fake.told()[-1] == (), 10, "the pressure is over")
    assert fake.order.count("evict a") == 1
    assert "images" not in fake.order, "images take no memory"
    wait_for(lambda: fake.events()[-1][2] == "NodeHasSufficientMemory", 10, "its event")
    said = fake.events()
    assert ("Pod", "Warning", "Evicted", first.message) in said
    nobody = {"offending_containers": "", "offending_containers_usage": ""}
    assert fake.annotations() == [nobody | {"starved_resource": "memory"}] * 2
    assert ("Node", "Warning", "EvictionThresholdMet", "Attempting to reclaim memory") in said
    low = "NodeHasInsufficientMemory"
    assert ("Node", "Normal", low, f"Node node status is now: {low}") in said


def test_pod_that_ends_slowly_goes_before_a_smaller_one(fake: FakeNode) -> None:
    """As in the kubelet. Not so pods that have ended, that no source has or that were not admitted."""
    fake.pod("small", 1 * GIB)
    fake.pod("ends", 5 * GIB, stage="terminating")
    fake.pod("ended", 6 * GIB, stage="terminated")
    fake.pod("deleted", 7 * GIB, stage="terminating", deleted=True)
    fake.pod("rejected", 0, stage="terminating", rejected=True)
    del fake.usages["rejected"]  # a pod of unknown usage is the first in rank
    assert [one.id for one in fake.actor.ask(PlanEviction(signal="memory.available", quantity="1Gi")).victims] == [
        "ends",
        "small",
    ]
    fake.memory_available = GIB // 2
    wait_for(fake.evictions, 10, "an eviction")
    looks = fake.looks()
    wait_for(lambda: fake.looks() >= looks + 2 or len(fake.evictions()) > 1, 20, "it waits for its end")
    assert [(one.pod_uid, one.grace_period_s) for one in fake.evictions()] == [("ends", 1)]
    wait_for(lambda: [reason for _, _, reason, _ in fake.events()].count("Evicted") == 1, 10, "its event")
    fake.stage("ends", "terminated", released=True)
    wait_for(lambda: len(fake.evictions()) == 2, 10, "memory is still short")
    assert fake.evictions()[1].pod_uid == "small"


def test_plan_names_the_pod_that_then_goes(fake: FakeNode) -> None:
    fake.pod("a", 1 * GIB)
    fake.pod("b", 5 * GIB)
    fake.pod("static", 9 * GIB, source="file")
    assert fake.actor.ask(PlanEviction()).notes == ("no eviction threshold is met",)
    plan = fake.actor.ask(PlanEviction(signal="memory.available", quantity="500Mi"))
    assert [(one.id, one.name, one.bytes) for one in plan.victims] == [("b", "ns/p-b", 5 * GIB), ("a", "ns/p-a", GIB)]
    assert plan.victims[0].rule == "above its request, priority 0"
    disk = fake.actor.ask(PlanEviction(signal="nodefs.available", quantity="5%"))
    assert disk.notes[0] == "unused containers and images are removed before a pod is evicted"
    for signal, quantity in (("memory.avail", "1Gi"), ("memory.available", "x"), ("memory.available", "0%")):
        with pytest.raises(Refused):
            fake.actor.ask(PlanEviction(signal=signal, quantity=quantity))
    assert not fake.evictions(), "a plan evicts nothing"
    fake.memory_available = GIB // 2
    wait_for(fake.evictions, 10, "an eviction")
    assert fake.evictions()[0].pod_uid == plan.victims[0].id
    assert "PlanChanged" not in [reason for _, _, reason, _ in fake.events()]


def test_eviction_tells_how_it_differs_from_the_plan(fake: FakeNode) -> None:
    fake.pod("a", 1 * GIB)
    fake.pod("b", 5 * GIB)
    assert fake.actor.ask(PlanEviction(signal="memory.available", quantity="500Mi")).victims[0].id == "b"
    fake.usages["a"] = 6 * GIB
    fake.memory_available = GIB // 2
    wait_for(fake.evictions, 10, "an eviction")
    assert fake.evictions()[0].pod_uid == "a"
    (text,) = wait_for(
        lambda: [message for _, _, reason, message in fake.events() if reason == "PlanChanged"], 10, "its event"
    )
    rule = "above its request, priority 0"
    assert f"ns/p-a: was {rule}, {GIB} memory, is {rule}, {6 * GIB} memory" in text


def test_figures_from_before_a_reclaim_end_no_pod(fake: FakeNode) -> None:
    """The disk recovers by the reclaim, memory gets short meanwhile: the pod goes for memory, by its new figures."""
    fake.pod("disk", 0)
    fake.pod("memory", 3 * GIB)
    fake.freed_by_images = 50 * GIB

    def delete_images(request: DeleteUnusedImages) -> CollectedImages:
        fake.memory_available = GIB // 2
        return fake.delete_images(request)

    fake.actor.peers["image_gc"].answers[DeleteUnusedImages] = delete_images
    fake.disk_available = GIB
    wait_for(lambda: "evict memory" in fake.order, 10, "an eviction")
    assert "low on resource: memory. Threshold quantity: 1Gi, available: 512Mi." in fake.evictions()[0].message
    assert fake.order[:4] == ["containers True", "images", "usages", "evict memory"]


def test_space_that_a_reclaim_frees_later_is_waited_for(fake: FakeNode) -> None:
    """Containerd answers before it has deleted a container's files."""
    fake.pod("a", GIB)
    looks: list[float] = []
    node = fake.actor.peers["stats"].answers[GetNodeStats]

    def collect(request: CollectGarbage) -> CollectedContainers:
        looks.append(time.monotonic())
        fake.collect_containers(request)
        return CollectedContainers(containers=1, sandboxes=0, directories=0)

    def figures_of(request: GetNodeStats) -> NodeStats:
        if looks and time.monotonic() - looks[0] > 1.5:
            fake.disk_available = 80 * GIB
        return node(request)

    fake.actor.peers["container_gc"].answers[CollectGarbage] = collect
    fake.actor.peers["stats"].answers[GetNodeStats] = figures_of
    fake.disk_available = GIB
    wait_for(lambda: fake.told()[-1:] == [()] and len(fake.told()) > 1, 20, "the condition came and went")
    assert not fake.evictions()


def test_without_figures_after_a_reclaim_no_pod_ends(fake: FakeNode) -> None:
    fake.pod("a", GIB)
    reclaimed = threading.Event()
    node = fake.actor.peers["stats"].answers[GetNodeStats]

    def collect(request: CollectGarbage) -> CollectedContainers:
        reclaimed.set()
        return fake.collect_containers(request)

    def figures_of(request: GetNodeStats) -> NodeStats:
        if reclaimed.is_set():
            raise Refused("Unavailable", "cannot measure")
        return node(request)

    fake.actor.peers["container_gc"].answers[CollectGarbage] = collect
    fake.actor.peers["stats"].answers[GetNodeStats] = figures_of
    fake.disk_available = GIB
    wait_for(reclaimed.is_set, 10, "a reclaim")
    asked = len(fake.actor.peers["stats"].received)
    wait_for(lambda: len(fake.actor.peers["stats"].received) > asked + 3, 10, "it looks on")
    assert not fake.evictions()


def test_writable_layers_on_a_disk_of_their_own() -> None:
    fake = FakeNode(eviction_hard={"nodefs.available": "10%", "imagefs.available": "15%"})
    fake.imagefs_device, fake.containerfs_device = 2, 3
    with fake.actor:
        fake.pod("a", GIB)
        fake.pod("b", 3 * GIB)
        wait_for(lambda: fake.pressure().signals, 10, "the first look")
        fake.containers_available = GIB
        wait_for(lambda: "evict b" in fake.order, 10, "an eviction")
        assert fake.order[:3] == ["containers True", "disk usages", "evict b"], "images are on another disk"
        words = "low on resource: ephemeral-storage. Threshold quantity: 10737418400, available: 1Gi. "
        assert words in fake.evictions()[0].message
        assert [one.signal for one in fake.pressure().signals if one.met] == ["containerfs.available"]
        assert fake.pressure().conditions == ("DiskPressure",)


def test_freed_images_prevent_an_eviction(fake: FakeNode) -> None:
    fake.pod("a", GIB)
    fake.freed_by_images = 50 * GIB
    fake.disk_available = GIB
    wait_for(lambda: fake.order, 10, "reclaim")
    wait_for(lambda: fake.told()[-1:] == [()] and len(fake.told()) > 1, 10, "the condition came and went")
    assert fake.order == ["containers True", "images"]


def test_pod_that_fills_the_disk_goes_when_reclaim_fails(fake: FakeNode) -> None:
    fake.pod("a", GIB)
    fake.pod("b", 3 * GIB)
    fake.disk_available = GIB
    wait_for(lambda: "evict b" in fake.order, 10, "an eviction")
    assert fake.order[:4] == ["containers True", "images", "disk usages", "evict b"]
    words = "low on resource: ephemeral-storage. Threshold quantity: 10737418400, available: 1Gi. "
    assert words in fake.evictions()[0].message


def test_a_soft_threshold_gives_time_to_the_node_and_to_the_pod() -> None:
    fake = FakeNode(
        eviction_hard={},
        eviction_soft={"memory.available": "2Gi"},
        eviction_soft_grace_s={"memory.available": 1.5},
        eviction_max_pod_grace_period_s=7,
    )
    with fake.actor:
        fake.pod("a", GIB)
        began = time.monotonic()
        fake.memory_available = GIB
        wait_for(lambda: fake.told()[-1:] == [("MemoryPressure",)], 10, "the condition holds at once")
        wait_for(fake.evictions, 20, "an eviction")
        assert time.monotonic() - began >= 1.5
        (evicted,) = fake.evictions()
        assert evicted.grace_period_s == 7
        assert "low on resource: memory. Threshold quantity: 2Gi, available: 1Gi. " in evicted.message


@pytest.mark.parametrize("hard", [{"nodefs.available": "10%"}, {"memory.available": "512Mi"}])
def test_soft_threshold_of_zero_seconds_evicts_at_once(hard: dict[str, str]) -> None:
    fake = FakeNode(
        eviction_hard=hard,
        eviction_soft={"memory.available": "2Gi"},
        eviction_soft_grace_s={"memory.available": 0.0},
    )
    with fake.actor:
        fake.pod("a", GIB)
        fake.memory_available = GIB
        wait_for(fake.evictions, 20, "an eviction")
        (evicted,) = fake.evictions()
        assert evicted.grace_period_s == HARD_GRACE_PERIOD_S
        assert "low on resource: memory. Threshold quantity: 2Gi, available: 1Gi. " in evicted.message


def test_all_pods_together_have_the_threshold_of_memory_too() -> None:
    fake = FakeNode(enforce_node_allocatable=("pods",), cgroup_root="/there/is/none")
    with fake.actor:
        wait_for(lambda: fake.pressure().signals, 10, "the first look")
        (own,) = [one for one in fake.pressure().signals if one.signal == "allocatableMemory.available"]
        assert (own.threshold, own.met) == (GIB, False)
        assert own.available == own.capacity == memory_capacity()


def test_failed_reclaim_leads_to_an_eviction(fake: FakeNode) -> None:
    def refuse(_: Any) -> Any:
        raise Refused("ImageGCFailed", "the runtime is down")

    fake.actor.peers["image_gc"].answers[DeleteUnusedImages] = refuse
    fake.pod("a", GIB)
    fake.disk_available = GIB
    wait_for(fake.evictions, 10, "an eviction")


def test_a_pod_that_is_gone_already_is_passed_over(fake: FakeNode) -> None:
    fake.pod("a", 5 * GIB)
    fake.pod("b", GIB)
    evict = fake.actor.peers["pod_workers"].answers[EvictPod]

    def gone(request: EvictPod) -> Any:
        if request.pod_uid == "a":
            raise Refused("NotFound", "no such pod")
        return evict(request)

    fake.actor.peers["pod_workers"].answers[EvictPod] = gone
    fake.memory_available = 0
    wait_for(lambda: "evict b" in fake.order, 10, "the next in rank goes")


@pytest.mark.parametrize("error", [Refused("Unavailable", "cannot measure"), ProtocolError("cannot send PodUsages")])
def test_without_usages_priority_decides(fake: FakeNode, error: Exception) -> None:
    def refuse(_: Any) -> Any:
        raise error

    fake.actor.peers["stats"].answers[GetPodUsages] = refuse
    fake.pod("a", GIB, priority=10)
    fake.pod("b", GIB, priority=1)
    fake.memory_available = 0
    wait_for(fake.evictions, 10, "an eviction")
    assert fake.evictions()[0].pod_uid == "b"


def test_pressure_survives_a_kill_for_its_transition_period() -> None:
    fake = FakeNode(eviction_pressure_transition_period_s=3600.0)
    with fake.actor:
        fake.memory_available = 0
        wait_for(lambda: ("MemoryPressure",) in fake.told(), 10, "pressure")
        fake.memory_available = 8 * GIB
        wait_for(lambda: not fake.pressure().signals[0].met, 10, "it is seen to be over")
        assert fake.pressure().conditions == ("MemoryPressure",)
        fake.actor.kill()
        fake.actor.peers["pod_workers"].received.clear()
        fake.actor.start()
        assert fake.pressure().conditions == ("MemoryPressure",)
        wait_for(lambda: fake.told() == [("MemoryPressure",)], 10, "the pod workers are told anew")


def test_pressure_that_is_over_is_in_no_checkpoint_that_is_written_late() -> None:
    fake = FakeNode(prelude="from actors._host.files import checkpoint; checkpoint.RETRY_S = 0.5\n")
    with fake.actor:
        path = Path(fake.actor.settings.root_dir, "nodevisor", "eviction.json")
        path.mkdir(parents=True)  # no write succeeds
        fake.memory_available = 0
        wait_for(lambda: fake.pressure().conditions, 10, "pressure")
        fake.memory_available = 8 * GIB
        wait_for(lambda: not fake.pressure().conditions, 10, "its end")
        path.rmdir()
        wait_for(path.is_file, 20, "the checkpoint is written")
        assert json.loads(path.read_bytes())["data"]["conditions"] == []


HANGS = """
import os, time
from actors.eviction import actor
actor.DISK_S = 0.2
scandir = os.scandir
os.scandir = lambda path=".": time.sleep(3600) if str(path).endswith("/pods") else scandir(path)
"""


def test_hanging_disk_does_not_keep_memory_from_being_freed() -> None:
    fake = FakeNode(prelude=HANGS)
    fake.memory_available = GIB // 2
    fake.pod("a", GIB)
    with fake.actor:
        wait_for(fake.evictions, 10, "an eviction")
        fake.stage("a", "terminated", released=True)
        fake.memory_available = 8 * GIB
        pass_looks(fake)


def test_no_thresholds_and_no_limits_no_work() -> None:
    fake = FakeNode(eviction_hard={}, local_storage_capacity_isolation=False)
    with fake.actor:
        wait_for(lambda: fake.told() == [()], 10, "the pod workers are told that nothing is short")
        assert fake.pressure() == Pressure(conditions=(), signals=())
        assert not fake.actor.peers["stats"].received


def test_stats_that_cannot_measure_change_nothing(fake: FakeNode) -> None:
    wait_for(lambda: fake.pressure().signals, 10, "the first look")

    def refuse(_: Any) -> Any:
        raise Refused("Unavailable", "cannot measure")

    fake.actor.peers["stats"].answers[GetNodeStats] = refuse
    asked = len(fake.actor.peers["stats"].received)
    wait_for(lambda: len(fake.actor.peers["stats"].received) > asked + 3, 10, "it goes on asking")
    assert fake.pressure().conditions == ()
