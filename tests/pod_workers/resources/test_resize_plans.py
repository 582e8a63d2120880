"""Plans of resizes: which containers restart, and in which order limits change."""

from typing import Any

import pytest

from actors._cgroup.limits import Limits
from actors._cgroup.quantities.resources import PodLimits
from actors.pod_workers.decide.resize import (
    Amounts,
    cpu_steps,
    memory_steps,
    plan,
    shrinking_limits,
)
from actors.pod_workers.model.allocation import resources_of
from actors.pod_workers.model.view import ResourcesView
from actors.pod_workers.policy import Actions, with_restarts
from tests.pod_workers.resources.resize_pods import GIB, LESS, MIB, MORE, STATIC, needs, pod, view


def names(updates: Any) -> str:
    return "".join(update.container.name for update in updates)


CPU_ONLY, MEMORY_ONLY = needs("2", "1Gi", "3", "2Gi"), needs("1", "2Gi", "2", "3Gi")


@pytest.mark.parametrize(
    ("wanted", "was", "restarts", "memory", "cpu"),
    [
        ((LESS,), (LESS,), "", "", ""),
        ((MORE,), (LESS,), "", "a", "a"),
        ((CPU_ONLY,), (LESS,), "", "", "a"),
        ((MEMORY_ONLY,), (LESS,), "", "a", ""),
        ((LESS, LESS), (MORE, MORE), "", "ba", "ba"),
        ((MORE, LESS), (LESS, MORE), "", "ba", "ba"),  # what shrinks goes first
        (({**MORE, "policy": ["memory"]},), (LESS,), "a", "", ""),
        (({**CPU_ONLY, "policy": ["memory"]},), (LESS,), "", "", "a"),
        (({**MORE, "policy": ["cpu"]}, MORE), (LESS, LESS), "a", "b", "b"),
        ((needs("1m", "1Gi"),), (needs("2m", "1Gi"),), "", "", ""),  # too small to make a difference
        ((needs("1m", "1Gi", "5m"),), (needs("1m", "1Gi", "10m"),), "", "", ""),
        ((needs("1", "2Gi"),), (needs("1", "1Gi"),), "", "a", ""),  # a request alone
    ],
)
def test_resize_plans(wanted: Any, was: Any, restarts: str, memory: str, cpu: str) -> None:
    subject = pod(*wanted)
    found = plan(subject, view("a", "b"), resources_of(pod(*was)))
    assert "".join(one.name for one, _ in found.restarts) == restarts
    assert (names(found.memory), names(found.cpu)) == (memory, cpu)
    assert bool(found) == bool(restarts or memory or cpu)


def test_containers_that_do_not_run_need_no_update() -> None:
    was = resources_of(pod(LESS))
    assert not plan(pod(MORE), view("a", state="exited"), was)
    assert not plan(pod(MORE), view(), was)
    assert not plan(pod(MORE, meta=STATIC), view("a"), was)


def test_resize_without_a_record_compares_with_the_runtime() -> None:
    shown = ResourcesView(milli_cpu_request=1000, milli_cpu_limit=2000, memory_limit_bytes=2 * GIB)
    assert not plan(pod({**MORE, "policy": ["cpu", "memory"]}), view("a"), None)
    assert not plan(pod(LESS), view("a", resources=shown), None)
    assert names(plan(pod(MORE), view("a", resources=shown), None).cpu) == "a"


def test_the_pods_own_resources_change_without_its_containers() -> None:
    subject = pod(needs(), resources=needs("2", "2Gi"))
    found = plan(subject, view("a"), resources_of(pod(needs(), resources=needs("1", "1Gi"))))
    assert (found.pod, found.memory, found.cpu) == (True, (), ())
    assert not plan(subject, view("a"), resources_of(subject))


def own(cpu: str, memory: str) -> dict[str, Any]:
    """The pod's own limits."""
    return {"limits": {"cpu": cpu, "memory": memory}}


@pytest.mark.parametrize(
    ("resources", "memory", "cpu"),
    [
        (needs("1", "1Gi"), "a", "a"),
        (needs("1", "1Gi", "1"), "a", ""),
        (needs("1", "1Gi", "", "1Gi"), "", "a"),
        (needs("1", "1Gi", "1", "1Gi"), "", ""),
    ],
)
def test_containers_follow_the_pods_limits_that_they_inherit(resources: Any, memory: str, cpu: str) -> None:
    subject, before = pod(resources, resources=own("3", "3Gi")), pod(resources, resources=own("2", "2Gi"))
    found = plan(subject, view("a"), resources_of(before))
    assert (found.pod, names(found.memory), names(found.cpu)) == (True, memory, cpu)
    for update in found.memory:
        assert (update.current.memory_limit, update.desired.memory_limit) == (2 * GIB, 3 * GIB)
    for update in found.cpu:
        assert (update.current.cpu_limit, update.desired.cpu_limit) == (2000, 3000)


def test_inherited_limits_in_a_record_are_those_the_container_has() -> None:
    """As the kubelet records them. A resize that broke off has changed the container and not the pod."""
    subject = pod(needs("1", "1Gi"), resources=own("3", "3Gi"))
    half = resources_of(pod(needs("1", "1Gi", "3", "3Gi"), resources=own("2", "2Gi")))
    found = plan(subject, view("a"), half)
    assert (found.pod, found.memory, found.cpu) == (True, (), ())


def test_inherited_limits_restart_a_container_whose_policy_says_so() -> None:
    given = {**needs("1", "1Gi"), "policy": ["memory"]}
    subject, before = pod(given, resources=own("2", "3Gi")), pod(given, resources=own("2", "2Gi"))
    assert [one.name for one, _ in plan(subject, view("a"), resources_of(before)).restarts] == ["a"]


def test_a_lost_record_restarts_no_container_that_inherits_limits() -> None:
    subject = pod({"policy": ["cpu", "memory"]}, resources=own("2", "2Gi"))
    shown = ResourcesView(milli_cpu_request=2000, milli_cpu_limit=2000, memory_limit_bytes=2 * GIB)
    assert not plan(subject, view("a", resources=shown), None)


def test_one_resource_at_a_time_is_asked_for() -> None:
    (update,) = plan(pod(MORE), view("a"), resources_of(pod(LESS))).memory
    assert update.amounts("memory", False) == Amounts(1000, 2000, 2 * GIB, 3 * GIB)
    assert update.amounts("cpu", True) == Amounts(2000, 3000, 2 * GIB, 3 * GIB)
    assert update.amounts("cpu", False) == Amounts(2000, 3000, GIB, 2 * GIB)


def test_a_restart_is_a_kill_and_a_start() -> None:
    subject = pod({**MORE, "policy": ["cpu"]}, MORE)
    planned = plan(subject, view("a", "b"), resources_of(pod(LESS, LESS)))
    actions = with_restarts(Actions(), planned, subject)
    assert [(kill.container.id, kill.message) for kill in actions.kill] == [
        ("a1", "Container a resize requires restart")
    ]
    assert [one.name for one in actions.start] == ["a"]
    assert not planned.without(["a1", "b1"]).restarts


def test_limits_that_shrink() -> None:
    planned = plan(pod(LESS, MORE, LESS), view("a", "b", "c"), resources_of(pod(MORE, LESS, needs("1", "1Gi", "2"))))
    assert shrinking_limits(planned.memory) == {"a1": 2 * GIB, "c1": 2 * GIB}  # c had none


NOW = Limits(cpu_shares=1024, cpu_quota_us=100_000, cpu_period_us=100_000, memory_bytes=100 * MIB)


@pytest.mark.parametrize(
    ("now", "wanted", "before", "after"),
    [
        (100, 200, [200], []),
        (200, 100, [], [100]),
        (100, 100, [], []),
        (None, 100, [], [100]),
        (100, None, [], []),  # a limit is not taken away again, as by the kubelet
    ],
)
def test_memory_of_the_pod(now: int | None, wanted: int | None, before: list[int], after: list[int]) -> None:
    found = memory_steps(Limits(2, None, 100_000, now), PodLimits(memory_bytes=wanted))
    assert [step.memory_bytes for step in found.before] == before
    assert [step.memory_bytes for step in found.after] == after


@pytest.mark.parametrize(
    ("shares", "quota", "before", "after"),
    [
        (2048, 200_000, ["quota", "shares"], []),
        (512, 50_000, [], ["shares", "quota"]),
        (2048, 50_000, ["shares"], ["quota"]),
        (512, 200_000, ["quota"], ["shares"]),
        (1024, 100_000, [], []),
        (1024, -1, ["quota"], []),  # cpuCFSQuota off
        (1024, None, [], []),
    ],
)
def test_cpu_of_the_pod(shares: int, quota: int | None, before: list[str], after: list[str]) -> None:
    found = cpu_steps(NOW, PodLimits(cpu_shares=shares, cpu_quota_us=quota, cpu_period_us=100_000))
    assert ["shares" if step.cpu_shares else "quota" for step in found.before] == before
    assert ["shares" if step.cpu_shares else "quota" for step in found.after] == after
