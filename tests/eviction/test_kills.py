"""Kills of eviction and of pod_workers while a pod is evicted: no other pod goes for the same pressure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors._host.files import checkpoint, paths
from actors._host.system import boot_id
from actors.eviction.actor import CHECKPOINT_VERSION
from proto.agent.actor import Describe
from proto.agent.supervisor import Exited, Started
from proto.pods.pod_workers import EvictPod, ListPodWorkers, PodWorkerStates, SetNodePressure
from tests.eviction.fake_node import GIB, FakeNode
from tests.harness import wait_for


def three_pods(**settings: Any) -> FakeNode:
    """A node whose memory gets short by pod b. Only the wait for a victim asks for pods without their objects."""
    fake = FakeNode(local_storage_capacity_isolation=False, **settings)
    for uid, use in (("a", GIB), ("b", 5 * GIB), ("c", 3 * GIB)):
        fake.pod(uid, use)
    fake.memory_available = GIB // 2
    return fake


def checkpoint_path(fake: FakeNode) -> Path:
    return Path(paths.checkpoints_dir(fake.actor.settings.root_dir)) / "eviction.json"


def victims(fake: FakeNode) -> list[dict[str, Any]]:
    data = checkpoint.load(checkpoint_path(fake), CHECKPOINT_VERSION)
    return data["victims"] if isinstance(data, dict) else []


def evicted(fake: FakeNode) -> list[str]:
    return [one.pod_uid for one in fake.evictions()]


def assert_memory_recovers_with_the_end_of_b(fake: FakeNode, asked: list[str]) -> None:
    """`asked`: the UIDs of all EvictPod."""
    looks = fake.looks()
    wait_for(lambda: fake.looks() >= looks + 2 or evicted(fake) != asked, 20, "it waits for the victim")
    assert evicted(fake) == asked
    assert fake.actor.ask(Describe()).state["waits_for"] == ["b"]
    fake.memory_available = 8 * GIB
    fake.stage("b", "terminated", released=True)
    wait_for(lambda: fake.told()[-1:] == [()], 20, "the pressure is over")
    assert evicted(fake) == asked
    assert victims(fake) == []
    said = [(kind, message) for kind, _, reason, message in fake.events() if reason == "Evicted"]
    assert said == [("Pod", fake.evictions()[0].message)]


def restart_as_under_pressure(fake: FakeNode) -> None:
    """kill -9 and the next incarnation. The stand-in for pod_workers forgets the conditions that it was told."""
    fake.actor.kill()
    received = fake.actor.peers["pod_workers"].received
    received[:] = [one for one in received if not isinstance(one, SetNodePressure)]
    fake.actor.start()


def lose_answers(fake: FakeNode, *, taken: bool) -> None:
    """Let the first EvictPod have its effect if `taken`, and no answer."""
    own = fake.actor.peers["pod_workers"].answers[EvictPod]

    def evict(request: EvictPod) -> Any:
        fake.actor.peers["pod_workers"].answers[EvictPod] = own
        if taken:
            own(request)

    fake.actor.peers["pod_workers"].answers[EvictPod] = evict


def restart_pod_workers(fake: FakeNode) -> None:
    fake.actor.peers["pod_workers"].incarnation = 2
    fake.actor.publish(Exited(name="pod_workers", incarnation=1, reason="killed by SIGKILL"))
    fake.actor.publish(Started(name="pod_workers", incarnation=2))


def test_killed_actor_waits_for_its_victim() -> None:
    fake = three_pods()
    with fake.actor:
        wait_for(fake.evictions, 10, "an eviction")
        wait_for(lambda: "Evicted" in [reason for _, _, reason, _ in fake.events()], 10, "its event")
        wait_for(lambda: all(one["told"] for one in victims(fake)), 10, "which is not to be recorded again")
        for _ in range(2):
            restart_as_under_pressure(fake)
            wait_for(lambda: ("MemoryPressure",) in fake.told(), 10, "the condition goes on")
        wait_for(lambda: fake.pressure().signals[0].met, 10, "it looks while it waits")
        assert_memory_recovers_with_the_end_of_b(fake, ["b"])


@pytest.mark.parametrize("restart", [restart_as_under_pressure, restart_pod_workers])
def test_kill_before_the_answer_costs_no_other_pod(restart: Callable[[FakeNode], None]) -> None:
    fake = three_pods()
    lose_answers(fake, taken=True)
    with fake.actor:
        wait_for(fake.evictions, 10, "an eviction")
        restart(fake)
        assert_memory_recovers_with_the_end_of_b(fake, ["b"])


def test_victim_is_waited_for_after_a_late_answer() -> None:
    fake = three_pods(prelude="import actors.eviction.actor as module; module.WORKERS_S = 0.5; ")
    lose_answers(fake, taken=True)
    with fake.actor:
        wait_for(fake.evictions, 10, "an eviction")
        assert_memory_recovers_with_the_end_of_b(fake, ["b"])


def test_lost_eviction_is_asked_for_again() -> None:
    fake = three_pods()
    lose_answers(fake, taken=False)
    with fake.actor:
        wait_for(fake.evictions, 10, "an eviction")
        restart_pod_workers(fake)
        wait_for(lambda: len(fake.evictions()) == 2, 10, "the pod runs on, so it is chosen again")
        assert_memory_recovers_with_the_end_of_b(fake, ["b", "b"])


def test_pod_workers_that_lacks_pods_ends_no_wait() -> None:
    """Until its sources are read, pod_workers may not have the victim."""
    fake = three_pods()
    lose_answers(fake, taken=True)
    states = fake.actor.peers["pod_workers"].answers[ListPodWorkers]
    with fake.actor:
        wait_for(fake.evictions, 10, "an eviction")

        def without_b(request: ListPodWorkers) -> PodWorkerStates:
            found = states(request)
            assert isinstance(found, PodWorkerStates)
            return PodWorkerStates(pods=tuple(one for one in found.pods if one.uid != "b"), sources_ready=False)

        fake.actor.peers["pod_workers"].answers[ListPodWorkers] = without_b
        restart_pod_workers(fake)
        wait_for(lambda: fake.looks() >= 2 or len(fake.evictions()) > 1, 20, "it looks for the victim")
        fake.actor.peers["pod_workers"].answers[ListPodWorkers] = states
        assert_memory_recovers_with_the_end_of_b(fake, ["b"])


QUICK = "import actors.eviction.under_way as m; m.CLEANUP_S, m.MINIMUM_KILL_WAIT_S = 0.2, 0.2; "


def test_pod_that_does_not_end_in_time_is_evicted_once() -> None:
    """The same request has no effect on it. One with a shorter grace period has."""
    soft = {
        "eviction_hard": {"memory.available": "1Mi"},
        "eviction_soft": {"memory.available": "1Gi"},
        "eviction_soft_grace_s": {"memory.available": 0.1},
        "eviction_max_pod_grace_period_s": 2,
    }
    fake = three_pods(prelude=QUICK, **soft)
    fake.stage("b", "terminating")
    fake.stage("a", "terminated")
    with fake.actor:
        wait_for(lambda: len(fake.evictions()) == 2, 30, "the next, after the wait for b")
        assert [(one.pod_uid, one.grace_period_s) for one in fake.evictions()] == [("b", 2), ("c", 2)]
        wait_for(lambda: not victims(fake), 20, "the end of the wait for c")
        restart_as_under_pressure(fake)
        wait_for(lambda: ("MemoryPressure",) in fake.told(), 10, "a look")
        wait_for(lambda: fake.order[-3:] == ["usages"] * 3, 20, "there is no pod to evict")
        assert fake.actor.ask(Describe()).state["overdue"] == ["b", "c"]
        assert len(fake.evictions()) == 2
        fake.memory_available = 0
        wait_for(lambda: len(fake.evictions()) == 4, 20, "the hard threshold is met")
        assert [(one.pod_uid, one.grace_period_s) for one in fake.evictions()[2:]] == [("b", 1), ("c", 1)]


@pytest.mark.parametrize("restart", [restart_as_under_pressure, restart_pod_workers])
@pytest.mark.parametrize("taken", [True, False])
def test_lost_eviction_of_an_ending_pod_is_sent_again(restart: Callable[[FakeNode], None], taken: bool) -> None:
    """Its stage does not tell whether the request came. No other pod goes for it."""
    fake = three_pods()
    fake.stage("b", "terminating")
    lose_answers(fake, taken=taken)
    with fake.actor:
        wait_for(fake.evictions, 10, "an eviction")
        restart(fake)
        wait_for(lambda: len(fake.evictions()) == 2, 10, "it is sent again")
        assert_memory_recovers_with_the_end_of_b(fake, ["b", "b"])


def test_restart_does_not_prolong_the_wait() -> None:
    fake = three_pods()
    fake.stage("b", "terminating")
    until = time.monotonic() + 2
    victim = {"uid": "b", "until": until, "signal": "memory.available", "involved": {}, "message": "", "told": True}
    victim["killed"] = True
    data = {"conditions": [], "boot_id": boot_id(), "victims": [victim]}
    checkpoint.save(checkpoint_path(fake), CHECKPOINT_VERSION, data)
    with fake.actor:
        wait_for(fake.evictions, 15, "an eviction after the deadline")
        assert time.monotonic() >= until
        assert evicted(fake) == ["c"]


def test_long_grace_of_a_soft_eviction_costs_no_other_pod() -> None:
    """The clean-up has its time once the processes have ended; before, the grace period counts."""
    fake = three_pods(
        prelude="import actors.eviction.under_way as module; module.CLEANUP_S = 0.2; ",
        eviction_hard={},
        eviction_soft={"memory.available": "1Gi"},
        eviction_soft_grace_s={"memory.available": 0.1},
        eviction_max_pod_grace_period_s=600,
    )
    with fake.actor:
        wait_for(fake.evictions, 10, "an eviction")
        for restarts in (False, True):
            if restarts:
                restart_as_under_pressure(fake)
            looks = fake.looks()
            wait_for(lambda looks=looks: fake.looks() >= looks + 3 or len(fake.evictions()) > 1, 20, "it looks")
            assert [(one.pod_uid, one.grace_period_s) for one in fake.evictions()] == [("b", 600)]
        fake.stage("b", "terminated")
        wait_for(lambda: len(fake.evictions()) == 2, 10, "the next, after the time for the clean-up")
        assert evicted(fake) == ["b", "c"]


@pytest.mark.parametrize(
    ("data", "conditions"),
    [
        (["MemoryPressure"], ("MemoryPressure",)),  # of an agent that kept only conditions
        ({"conditions": ["DiskPressure"], "victims": [{"uid": 5}]}, ()),
        (5, ()),
    ],
)
def test_other_forms_of_the_checkpoint_are_no_obstacle(data: Any, conditions: tuple[str, ...]) -> None:
    fake = FakeNode(eviction_pressure_transition_period_s=3600.0)
    checkpoint.save(checkpoint_path(fake), CHECKPOINT_VERSION, data)
    with fake.actor:
        wait_for(lambda: fake.pressure().signals, 10, "the first look")
        assert fake.pressure().conditions == conditions
