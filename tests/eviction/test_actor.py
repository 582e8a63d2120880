"""The eviction actor as a process; stats, image_gc, container_gc and pod_workers are stand-ins."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors._cgroup.hierarchy import hierarchy
from actors._host.machine import memory_capacity
from actors.eviction.actor import SPECS_AT_ONCE
from actors.eviction.policy import HARD_GRACE_PERIOD_S
from proto.agent.actor import Describe
from proto.agent.supervisor import Started
from proto.node.container_gc import Collected as CollectedContainers
from proto.node.container_gc import CollectGarbage
from proto.node.eviction import GetPressure, PlanEviction, Pressure
from proto.node.image_gc import Collected as CollectedImages
from proto.node.image_gc import DeleteUnusedImages
from proto.node.stats import FsStats, GetNodeStats, GetPodUsages, NodeStats, PodUsage, PodUsages, VolumeUse
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import EvictPod, ListPodWorkers, PodWorkerState, PodWorkerStates, SetNodePressure
from proto.v1 import Pod, from_dict
from proto.wire.errors import ProtocolError, Refused
from proto.wire.message import Done
from tests.harness import ActorProcess, wait_for

GIB = 1 << 30


class FakeNode:
    """A node whose figures the test sets, and whose pods end when they are evicted."""

    def __init__(self, *, prelude: str = "", **settings: Any) -> None:
        self.memory_available = 8 * GIB
        self.disk_available = 80 * GIB
        self.imagefs_device = 1
        self.containerfs_device = 0
        """0: writable layers are on imagefs."""
        self.containers_available = 80 * GIB
        self.freed_by_images = 0
        self.pods: dict[str, PodWorkerState] = {}
        self.sources_ready = True
        self.usages: dict[str, int] = {}
        self.volumes: dict[str, int] = {}
        """UID to the bytes in the pod's volume `v`."""
        self.order: list[str] = []
        """The requests that the actor made, in order."""
        self._staging = threading.Lock()
        self.actor = ActorProcess(
            "eviction",
            None,
            ("stats", "image_gc", "container_gc", "pod_workers", "events"),
            prelude=prelude,
            **{
                "eviction_monitoring_period_s": 0.05,
                "eviction_pressure_transition_period_s": 0.0,
                "eviction_hard": {"memory.available": "1Gi", "nodefs.available": "10%"},
                "enforce_node_allocatable": (),
            }
            | settings,
        )
        self.directories = Path(self.actor.settings.root_dir, "pods")
        self.directories.mkdir(parents=True)
        peers = self.actor.peers
        peers["stats"].answers = {GetNodeStats: self.node, GetPodUsages: self.measure}
        peers["container_gc"].answers[CollectGarbage] = self.collect_containers
        peers["image_gc"].answers[DeleteUnusedImages] = self.delete_images
        peers["pod_workers"].answers = {
            ListPodWorkers: lambda request: PodWorkerStates(
                pods=tuple(row for uid, row in list(self.pods.items()) if not request.uids or uid in request.uids),
                sources_ready=self.sources_ready,
            ),
            EvictPod: self.evict,
        }

    def node(self, _: GetNodeStats) -> NodeStats:
        def fs(device: int, available: int) -> FsStats:
            return FsStats(
                path="/",
                device=device,
                capacity_bytes=100 * GIB,
                available_bytes=available,
                inodes=100,
                inodes_free=100,
            )

        return NodeStats(
            time=time.time(),
            memory_capacity_bytes=16 * GIB,
            memory_working_set_bytes=16 * GIB - self.memory_available,
            memory_available_bytes=self.memory_available,
            nodefs=fs(1, self.disk_available),
            imagefs=fs(self.imagefs_device, self.disk_available),
            containerfs=fs(self.containerfs_device, self.containers_available) if self.containerfs_device else None,
        )

    def measure(self, request: GetPodUsages) -> PodUsages:
        self.order.append("disk usages" if request.with_disk else "usages")
        volumes = dict(self.volumes)  # a test may add one meanwhile
        pods = (
            PodUsage(
                pod_uid=uid,
                memory_working_set_bytes=n,
                disk_bytes=n,
                volumes=(VolumeUse(name="v", used_bytes=volumes[uid]),) if uid in volumes else (),
            )
            for uid, n in list(self.usages.items())
        )
        return PodUsages(time=time.time(), pods=tuple(pods))

    def collect_containers(self, request: CollectGarbage) -> CollectedContainers:
        self.order.append(f"containers {request.all_dead}")
        return CollectedContainers(containers=0, sandboxes=0, directories=0)

    def delete_images(self, _: DeleteUnusedImages) -> CollectedImages:
        self.order.append("images")
        self.disk_available += self.freed_by_images
        return CollectedImages(freed_bytes=self.freed_by_images)

    def evict(self, request: EvictPod) -> Done:
        if request.pod_uid not in self.pods:
            raise Refused("NotFound", "no such pod")
        self.order.append(f"evict {request.pod_uid}")
        with self._staging:  # a test sees the request before this, and may have ended the pod since
            if self.pods[request.pod_uid].stage != "terminated":
                self.pods[request.pod_uid] = msgspec.structs.replace(self.pods[request.pod_uid], stage="terminating")
        return Done()

    def stage(self, uid: str, stage: Any, *, released: bool = False) -> None:
        with self._staging:
            self.pods[uid] = msgspec.structs.replace(self.pods[uid], stage=stage, released=released)

    def pod(self, uid: str, use: int, *, priority: int = 0, source: str = "api", limit: str = "", **state: Any) -> None:
        """Add a pod with its usage and directory. `limit`: of the size of its emptyDir `v`. `state`: of its worker."""
        volumes = [{"name": "v", "emptyDir": {"sizeLimit": limit}}] if limit else []
        pod = from_dict(
            Pod,
            {
                "metadata": {
                    "name": f"p-{uid}",
                    "namespace": "ns",
                    "uid": uid,
                    "annotations": {"kubernetes.io/config.source": source},
                },
                "spec": {"containers": [{"name": "c"}], "priority": priority, "volumes": volumes},
            },
        )
        (self.directories / uid).mkdir(exist_ok=True)
        known: dict[str, Any] = {"stage": "sync", "deleted": False, **state}
        self.pods[uid] = PodWorkerState(uid=uid, namespace="ns", name=f"p-{uid}", static=False, pod=pod, **known)
        self.usages[uid] = use

    def pressure(self) -> Pressure:
        return self.actor.ask(GetPressure())

    def told(self) -> list[tuple[str, ...]]:
        return [tuple(message.conditions) for message in self.actor.peers["pod_workers"].of(SetNodePressure)]

    def events(self) -> list[tuple[str, str, str, str]]:
        """(kind of object, type, reason, message)"""
        found = self.actor.peers["events"].of(RecordEvent)
        return [(one.involved.kind or "", one.type, one.reason, one.message) for one in found]

    def annotations(self) -> list[dict[str, str]]:
        """Annotations of the Evicted events."""
        return [one.annotations for one in self.actor.peers["events"].of(RecordEvent) if one.reason == "Evicted"]

    def looks(self) -> int:
        """The number of the actor's requests for stages of pods that it evicts."""
        return sum(not one.with_pods for one in self.actor.peers["pod_workers"].of(ListPodWorkers))

    def evictions(self) -> list[EvictPod]:
        return self.actor.peers["pod_workers"].of(EvictPod)


@pytest.fixture
def fake() -> Iterator[FakeNode]:
    fake = FakeNode()
    with fake.actor:
        yield fake


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


UNIFIED = """
import actors.eviction.actor as module
from actors._cgroup.hierarchy import Hierarchy
from actors.eviction import notification
module.hierarchy = lambda: Hierarchy(unified=True, mounts={{"": {root!r}}})
notification.MACHINE_STALLS = {stalls!r}
"""


def unified(root: Path, stalls: str, prelude: str = "") -> FakeNode:
    """A node whose eviction sees cgroup v2 in `root`, and looks by itself once an hour."""
    (root / "pods/kubepods").mkdir(parents=True)
    fake = FakeNode(
        prelude=UNIFIED.format(root=str(root), stalls=stalls) + prelude,
        eviction_monitoring_period_s=3600.0,
        cgroup_root="/pods",
        local_storage_capacity_isolation=False,
    )
    fake.memory_available = 16 * GIB
    return fake


def test_memory_events_of_the_pods_wake_the_actor(tmp_path: Path) -> None:
    fake = unified(tmp_path, str(tmp_path / "none"))
    events = tmp_path / "pods/kubepods/memory.events"
    events.write_text("low 0\nhigh 0\nmax 0\noom 0\n")
    with fake.actor:
        wait_for(lambda: fake.actor.ask(Describe()).state["notices"] == [str(events)], 10, "it watches")
        for number, available in enumerate((0, 16 * GIB, 0)):  # a second notice is heard, too
            fake.memory_available = available
            events.write_text(f"low 0\nhigh 0\nmax {number + 1}\noom 0\n")
            wait_for(lambda low=available == 0: fake.pressure().signals[0].met == low, 10, "a look before its period")
        events.unlink()
        wait_for(lambda: fake.actor.ask(Describe()).state["notices"] == [], 10, "it stops to watch")


MARKS_NOTICES = """
inner = module.ACTOR._look_at_once

def look(self, path, goes_on):
    inner(self, path, goes_on)
    with open({marks!r}, "a") as file:
        file.write("x")

module.ACTOR._look_at_once = look
"""


def test_notice_during_a_look_makes_another(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.touch()
    fake = unified(tmp_path, str(tmp_path / "none"), MARKS_NOTICES.format(marks=str(marks)))
    events = tmp_path / "pods/kubepods/memory.events"
    events.write_text("low 0\nhigh 0\nmax 0\noom 0\n")

    def count(number: int) -> None:
        with events.open("r+") as file:  # not emptied before: that would be a notice of its own
            file.write(f"low 0\nhigh 0\nmax {number}\noom 0\n")

    asked, gate = threading.Event(), threading.Event()

    def held(request: GetNodeStats) -> NodeStats:
        figures = fake.node(request)
        asked.set()
        gate.wait(30)
        return figures

    with fake.actor:
        wait_for(lambda: fake.actor.ask(Describe()).state["notices"] == [str(events)], 10, "it watches")
        fake.actor.peers["stats"].answers[GetNodeStats] = held
        count(1)
        assert asked.wait(20), "a look has its figures"
        fake.memory_available = 0
        count(2)
        wait_for(lambda: marks.read_text() == "xx", 20, "the second notice has come")
        gate.set()
        wait_for(lambda: fake.pressure().signals[0].met, 20, "another look follows")
    ages = [one.max_age_s for one in fake.actor.peers["stats"].of(GetNodeStats)]
    assert ages[1:3] == [0.0, 0.0], "stats would answer with figures from before a notice"


STALLS = "/proc/pressure/memory"


@pytest.mark.needs("root", "cgroups")
@pytest.mark.skipif(not os.access(STALLS, os.W_OK), reason="the kernel counts no stalls")
def test_stalls_of_the_machine_wake_the_actor(tmp_path: Path) -> None:
    fake = unified(tmp_path, STALLS)
    with fake.actor:
        wait_for(lambda: fake.actor.ask(Describe()).state["notices"] == [STALLS], 10, "it watches")
        wait_for(lambda: fake.pressure().signals, 10, "the first look")
        fake.memory_available = 0
        with limited_memory(64 << 20) as procs:
            hog = subprocess.Popen([sys.executable, "-c", THRASH, procs, str(tmp_path / "file")])
            try:
                wait_for(lambda: fake.told()[-1:] == [("MemoryPressure",)], 30, "a look before its period")
            finally:
                hog.kill()
                hog.wait()


THRASH = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
with open(sys.argv[2], "wb") as file:
    file.truncate(0)
    for _ in range(160):
        file.write(os.urandom(1 << 20))
while True:
    with open(sys.argv[2], "rb") as file:
        while file.read(1 << 20):
            pass
"""


@contextmanager
def limited_memory(most: int) -> Iterator[str]:
    """Yield the file of processes of a new cgroup with so many bytes."""
    with memory_cgroup() as where:
        (where / ("memory.max" if hierarchy().unified else "memory.limit_in_bytes")).write_text(str(most))
        yield str(where / "cgroup.procs")


@contextmanager
def memory_cgroup() -> Iterator[Path]:
    """Yield a new cgroup of the memory controller."""
    where = Path(hierarchy().path("memory", f"/nvtest-{os.getpid()}") or "")
    where.mkdir()
    try:
        yield where
    finally:
        wait_for(lambda: not (where / "cgroup.procs").read_text(), 10, "its processes have ended")
        where.rmdir()


@pytest.mark.needs("root", "cgroups")
@pytest.mark.skipif(hierarchy().unified, reason="cgroup v2 has no such notices")
def test_notice_of_the_kernel_wakes_the_actor() -> None:
    """The machine's memory is that of a cgroup: the usage of everything else may rise and fall as it likes."""
    with memory_cgroup() as where:
        fake = only_sees(where)
        with fake.actor:
            wait_for(lambda: fake.pressure().signals, 10, "the first look")
            fake.memory_available = 0
            hog = subprocess.Popen([sys.executable, "-c", RISES_AND_FALLS, str(where / "cgroup.procs")])
            try:
                wait_for(lambda: fake.told()[-1:] == [("MemoryPressure",)], 20, "a look before its period")
            finally:
                hog.kill()
                hog.wait()


RISES_AND_FALLS = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
while True:
    data = b"x" * (768 << 20)
    del data
"""
V1 = """
import actors.eviction.actor as module
from actors._cgroup.hierarchy import Hierarchy
module.hierarchy = lambda: Hierarchy(unified=False, mounts={{"memory": {where!r}}})
"""


def only_sees(where: Path) -> FakeNode:
    """A node with the memory cgroup `where` as its root, for which 256 MiB in use are too much."""
    fake = FakeNode(
        prelude=V1.format(where=str(where)),
        kernel_memcg_notification=True,
        eviction_monitoring_period_s=3600.0,
        eviction_hard={"memory.available": str(16 * GIB - (256 << 20))},
        local_storage_capacity_isolation=False,
    )
    fake.memory_available = 16 * GIB
    return fake


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


def test_pods_above_their_limits_go_without_node_pressure(fake: FakeNode) -> None:
    for uid in ("small", "large"):
        fake.pod(uid, 0, limit="1Mi")
    fake.volumes = {"small": 1 << 20, "large": 2 << 20}
    wait_for(fake.evictions, 10, "an eviction")
    (request,) = fake.evictions()
    assert (request.pod_uid, request.reason, request.grace_period_s) == ("large", "Evicted", 1)
    assert request.message == 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    wait_for(lambda: fake.annotations() == [{}], 10, "its event, without annotations as the kubelet's")
    assert fake.pressure().conditions == ()
    fake.stage("large", "terminated", released=True)
    fake.pod("ends", 0, limit="1Mi", stage="terminating")
    fake.pod("deleted", 0, limit="1Mi", stage="terminating", deleted=True)
    fake.volumes |= {"ends": 2 << 20, "deleted": 2 << 20}
    wait_for(lambda: len(fake.evictions()) == 2, 10, "a pod that ends slowly has its limit, too")
    assert fake.evictions()[1].pod_uid == "ends"
    fake.stage("ends", "terminated", released=True)
    fake.volumes["small"] = 2 << 20
    wait_for(lambda: len(fake.evictions()) == 3, 10, "the other grows too")
    assert fake.evictions()[2].pod_uid == "small"


def test_specs_are_asked_for_once_and_few_at_a_time() -> None:
    fake = FakeNode()
    for number in range(SPECS_AT_ONCE + 5):
        fake.pod(f"{number}", 0, limit="1Mi" if number in (3, SPECS_AT_ONCE + 3) else "")
    fake.pod("new", 0, limit="1Mi")
    new = fake.pods.pop("new")
    with fake.actor as actor:
        wait_for(lambda: len(fake.order) >= 2, 10, "usages of the limited pods, measured twice")
        asked = [one for one in actor.peers["pod_workers"].of(ListPodWorkers) if one.with_pods]
        assert [len(one.uids) for one in asked] == [SPECS_AT_ONCE, 5]
        fake.volumes["new"] = 2 << 20
        fake.pods["new"] = new
        wait_for(fake.evictions, 10, "the pod that came later")
        assert fake.evictions()[0].pod_uid == "new"
        asked = [one for one in actor.peers["pod_workers"].of(ListPodWorkers) if one.with_pods]
        assert [one.uids for one in asked[2:]] == [("new",)]


def lists(fake: FakeNode) -> int:
    return len(fake.actor.peers["pod_workers"].of(ListPodWorkers))


def pass_looks(fake: FakeNode, number: int = 4) -> None:
    """Wait until the actor has looked at the node a few times more."""
    stats = fake.actor.peers["stats"]
    looks = len(stats.of(GetNodeStats))
    wait_for(lambda: len(stats.of(GetNodeStats)) > looks + number, 10, "looks")


def wait_until_quiet(fake: FakeNode) -> int:
    """Wait until looks do not ask for pods. Returns how often they have asked."""

    def quiet() -> int:
        asked = lists(fake)
        pass_looks(fake)
        return asked if lists(fake) == asked else 0

    return wait_for(quiet, 10, "it is sure that there are no other pods")


def test_without_limits_only_a_new_directory_makes_a_look_ask_for_pods() -> None:
    fake = FakeNode()
    fake.pod("unlimited", 0)
    with fake.actor:
        asked = wait_until_quiet(fake)
        (fake.directories / "new").mkdir()
        wait_for(lambda: lists(fake) >= asked + 3, 10, "it asks until the new pod has a worker")
        fake.pod("new", 0)
        (fake.directories / ".removed-1").mkdir()
        wait_until_quiet(fake)
        fake.pod("limited", 0, limit="1Mi")
        fake.volumes["limited"] = 2 << 20
        wait_for(fake.evictions, 10, "an eviction")


@pytest.mark.parametrize("sources_ready", [False, True])
def test_pods_that_begin_in_their_old_directories_are_found(*, sources_ready: bool) -> None:
    """Pod_workers has just started: it does not know them yet, or is still admitting them."""
    fake = FakeNode()
    fake.pod("limited", 0, limit="1Mi")
    fake.volumes["limited"] = 2 << 20
    pods, fake.pods, fake.sources_ready = fake.pods, {}, sources_ready
    with fake.actor:
        wait_for(lambda: lists(fake) > 2, 10, "it asks and asks")
        fake.sources_ready, fake.pods = True, pods
        wait_for(fake.evictions, 10, "an eviction")


def test_limits_are_known_after_an_incomplete_list() -> None:
    """And a complete list without the pod forgets them only with its directory."""
    fake = FakeNode()
    fake.pod("limited", 0, limit="1Mi")
    with fake.actor:
        wait_for(lambda: fake.order, 10, "it measures")
        asked = len(fake.actor.peers["pod_workers"].of(ListPodWorkers))
        pods, fake.pods, fake.sources_ready = fake.pods, {}, False
        pass_looks(fake)
        fake.sources_ready = True
        pass_looks(fake)
        fake.volumes["limited"] = 2 << 20
        fake.pods = pods
        wait_for(fake.evictions, 10, "an eviction")
        later = fake.actor.peers["pod_workers"].of(ListPodWorkers)[asked:]
        assert not any(one.with_pods for one in later)
        fake.pods = {}
        (fake.directories / "limited").rmdir()
        wait_until_quiet(fake)


def test_new_pod_workers_are_asked_until_they_name_each_directory() -> None:
    fake = FakeNode()
    fake.pod("unlimited", 0)
    with fake.actor:
        asked = wait_until_quiet(fake)
        pods, fake.pods = fake.pods, {}
        fake.actor.peers["pod_workers"].incarnation = 2
        fake.actor.publish(Started(name="pod_workers", incarnation=2))
        wait_for(lambda: lists(fake) > asked + 4, 10, "it asks at each look while a directory has no pod")
        fake.pods = pods
        wait_until_quiet(fake)
        asked = lists(fake)
        fake.actor.peers["pod_workers"].incarnation = 3
        fake.actor.publish(Started(name="pod_workers", incarnation=3))
        wait_for(lambda: lists(fake) > asked, 10, "it asks though each directory had a pod before")


def test_pod_that_comes_back_after_its_orphan_has_its_own_limit() -> None:
    """A static pod has the UID of its orphan, which has no spec. No actor listed the pods in between."""
    fake = FakeNode()
    fake.pod("back", 0)
    fake.stage("back", "terminating")
    with fake.actor:
        wait_until_quiet(fake)
        (fake.directories / "back").rmdir()
        fake.pod("back", 0, limit="1Mi")
        fake.volumes["back"] = 2 << 20
        wait_for(fake.evictions, 10, "an eviction")


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
