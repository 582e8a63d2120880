"""Memory QoS: the table cases of KEP-2570 and of Kubernetes 1.36 for containers, pods and QoS classes."""

from __future__ import annotations

from typing import Any

import pytest

from actors._cgroup import tiers
from actors._cgroup.limits import Limits, files
from actors._cgroup.quantities import memory_qos
from actors._cgroup.quantities.memory_qos import PAGE, memory_high
from actors._cgroup.quantities.resources import PodLimits, container_resources, pod_limits
from actors._cgroup.quantities.swap import SwapRules
from actors._cgroup.systemd.properties import of_limits
from actors.pod_workers.admission import Share
from actors.pod_workers.decide.resize import memory_steps
from proto.agent.settings import Settings
from proto.v1 import Pod
from tests.cgroup.test_resources import container, pod

MI, GI = 1 << 20, 1 << 30
OFF = Settings()
THROTTLED = Settings(memory_throttling_factor=0.9)
TIERED = Settings(memory_throttling_factor=0.9, memory_reservation_policy="TieredReservation")
V2 = SwapRules(unified=True)
GUARANTEED = container(requests={"cpu": "1", "memory": "128Mi"}, limits={"cpu": "1", "memory": "128Mi"})
BURSTABLE = container(requests={"memory": "256Mi"}, limits={"memory": "512Mi"})
NO_LIMIT = container(requests={"memory": "256Mi"})
ONLY_CPU = container(requests={"cpu": "1"})
BEST_EFFORT = container()


@pytest.mark.parametrize(
    ("request_mi", "factor", "high_mi"),
    [
        (0, 0.9, 900), (100, 0.9, 910), (200, 0.9, 920), (300, 0.9, 930), (400, 0.9, 940), (500, 0.9, 950),
        (600, 0.9, 960), (700, 0.9, 970), (800, 0.9, 980), (900, 0.9, 990), (1000, 0.9, 0),
        (500, 0.6, 800), (800, 0.6, 920), (1000, 0.6, 0), (500, 0.8, 900), (850, 0.8, 970), (500, 0.4, 700),
        (256, 1.0, 1000),
    ],
)  # fmt: skip
def test_memory_high_is_that_of_the_kep(request_mi: int, factor: float, high_mi: int) -> None:
    assert memory_high(request_mi * MI, 1000 * MI, 0, factor) == high_mi * MI


@pytest.mark.parametrize(
    ("request_", "limit", "allocatable", "high"),
    [
        (256 * MI, 0, 8 * GI, int((256 * MI + 0.9 * (8 * GI - 256 * MI)) // PAGE) * PAGE),
        (256 * MI, 0, 0, 0),
        (256 * MI, 0, 128 * MI, 0),
        (0, 10 * PAGE, 0, 9 * PAGE),
        (0, 10 * PAGE + 1, 0, 9 * PAGE),
        (PAGE, PAGE + 100, 0, 0),
        (0, 0, 8 * GI, 0),
    ],
)
def test_memory_high_is_whole_pages_above_the_request(request_: int, limit: int, allocatable: int, high: int) -> None:
    assert memory_high(request_, limit, allocatable, 0.9) == high


HIGH = {"memory.high": str(int((256 + 0.9 * 256) * MI // PAGE) * PAGE)}
HIGH_OF_NODE = {"memory.high": str(int((256 * MI + 0.9 * (8 * GI - 256 * MI)) // PAGE) * PAGE)}
HIGH_WITHOUT_REQUEST = {"memory.high": str(int(0.9 * 8 * GI // PAGE) * PAGE)}


def protected(least: int = 0, low: int = 0) -> dict[str, str]:
    return {"memory.min": str(least), "memory.low": str(low)}


@pytest.mark.parametrize(
    ("settings", "subject", "expected"),
    [
        (OFF, BURSTABLE, {}),
        (THROTTLED, GUARANTEED, protected()),
        (THROTTLED, BURSTABLE, protected() | HIGH),
        (THROTTLED, NO_LIMIT, protected() | HIGH_OF_NODE),
        (THROTTLED, ONLY_CPU, protected()),
        (THROTTLED, BEST_EFFORT, protected()),
        (TIERED, GUARANTEED, protected(least=128 * MI)),
        (TIERED, BURSTABLE, protected(low=256 * MI) | HIGH),
        (TIERED, NO_LIMIT, protected(low=256 * MI) | HIGH_OF_NODE),
        (TIERED, ONLY_CPU, protected()),
        (TIERED, BEST_EFFORT, protected()),
    ],
)
def test_files_of_a_container(settings: Settings, subject: dict[str, Any], expected: dict[str, str]) -> None:
    owner = pod(subject)
    found = container_resources(
        owner,
        owner.spec.containers[0],
        settings,
        memory_capacity_bytes=16 * GI,
        allocatable_memory_bytes=8 * GI,
        swap=V2,
    )
    assert {
        name: text for name, text in found.unified if name in ("memory.min", "memory.low", "memory.high")
    } == expected


def test_on_cgroup_v1_containers_have_no_such_files() -> None:
    owner = pod(BURSTABLE)
    found = container_resources(owner, owner.spec.containers[0], TIERED, memory_capacity_bytes=GI)
    assert found.unified == ()


@pytest.mark.parametrize(
    ("settings", "subject", "least", "low"),
    [
        (OFF, pod(GUARANTEED), None, None),
        (THROTTLED, pod(GUARANTEED), 0, 0),
        (THROTTLED, pod(BEST_EFFORT), 0, 0),
        (TIERED, pod(GUARANTEED), 128 * MI, 0),
        (TIERED, pod(BURSTABLE), 0, 256 * MI),
        (TIERED, pod(BURSTABLE, NO_LIMIT | {"name": "d"}, GUARANTEED | {"name": "e"}), 0, 640 * MI),
        (TIERED, pod(BEST_EFFORT), 0, 0),
        (TIERED, pod(NO_LIMIT, resources={"requests": {"memory": "1Gi"}}), 0, GI),
        (TIERED, pod(BURSTABLE, overhead={"memory": "8Mi"}), 0, 264 * MI),
    ],
)
def test_protection_of_a_pod(settings: Settings, subject: Pod, least: int | None, low: int | None) -> None:
    found = pod_limits(subject, settings)
    assert (found.memory_min_bytes, found.memory_low_bytes) == (least, low)


PODS = [pod(GUARANTEED), pod(container(requests={"memory": "128Mi"})), pod(NO_LIMIT), pod(BEST_EFFORT), pod(ONLY_CPU)]


@pytest.mark.parametrize(
    ("settings", "pods", "node", "burstable"),
    [
        (TIERED, PODS, 512 * MI, 384 * MI),
        (TIERED, [pod(BEST_EFFORT)], 0, 0),
        (TIERED, [pod(ONLY_CPU)], 0, 0),
        (TIERED, [], 0, 0),
        (TIERED, [pod(GUARANTEED), pod(NO_LIMIT, resources={"requests": {"memory": "512Mi"}})], 640 * MI, 512 * MI),
        (THROTTLED, PODS, 0, 0),
    ],
)
def test_protection_of_the_classes(settings: Settings, pods: list[Pod], node: int, burstable: int) -> None:
    found = tiers.of_classes([Share.of(one) for one in pods], 8 * GI, settings)
    assert (found["Guaranteed"].memory_min_bytes, found["Guaranteed"].memory_low_bytes) == (node, None)
    assert (found["Burstable"].memory_min_bytes, found["Burstable"].memory_low_bytes) == (None, burstable)
    assert found["BestEffort"].memory_low_bytes is None


def test_without_the_gate_no_class_stays_protected() -> None:
    found = tiers.of_classes([Share.of(one) for one in PODS], 8 * GI, OFF)
    assert set(found) == {"Burstable", "BestEffort"}
    assert (found["Burstable"].memory_min_bytes, found["Burstable"].memory_low_bytes) == (0, 0)
    assert found["BestEffort"].memory_low_bytes is None


def test_protection_is_written_on_v2_alone() -> None:
    limits = PodLimits(memory_min_bytes=0, memory_low_bytes=7)
    assert files(limits, unified=True) == [("memory", "memory.min", "0"), ("memory", "memory.low", "7")]
    assert files(limits, unified=False) == []
    assert of_limits(limits, unified=True) == [("MemoryMin", ("t", 0)), ("MemoryLow", ("t", 7))]


@pytest.mark.parametrize(
    ("settings", "unified", "release", "problem"),
    [
        (OFF, False, "4.19.0", ""),
        (TIERED, True, "6.1.0-18-amd64", ""),
        (TIERED, True, "5.9.0", ""),
        (TIERED, True, "5.4.0-90-generic", "hang at memory.high on kernel 5.4.0-90-generic"),
        (TIERED, False, "6.1.0", "no effect on cgroup v1"),
    ],
)
def test_a_machine_that_does_not_fit_is_warned_of(
    settings: Settings, unified: bool, release: str, problem: str
) -> None:
    found = memory_qos.problem(settings, unified=unified, release=release)
    assert problem in found
    assert bool(problem) == bool(found)


def test_a_resize_changes_the_protection_of_the_pod() -> None:
    now = Limits(cpu_shares=2, cpu_quota_us=None, cpu_period_us=100_000, memory_bytes=GI)
    steps = memory_steps(now, pod_limits(pod(BURSTABLE), TIERED))
    assert PodLimits(memory_min_bytes=0, memory_low_bytes=256 * MI) in steps.before
    assert memory_steps(now, pod_limits(pod(BURSTABLE), OFF)).before == ()
