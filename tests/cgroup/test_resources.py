"""Limits as numbers, against what the kubelet asked of the runtime and wrote into cgroups."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._cgroup.hierarchy import huge_page_sizes
from actors._cgroup.quantities import totals
from actors._cgroup.quantities.cri import linux_container_resources
from actors._cgroup.quantities.resources import (
    LinuxResources,
    PodLimits,
    container_resources,
    milli_cpu_to_quota,
    milli_cpu_to_shares,
    oom_score_adj,
    overhead_resources,
    pod_limits,
    quota_to_milli_cpu,
    sandbox_resources,
    shares_to_milli_cpu,
    shares_to_weight,
    weight_to_shares,
)
from actors._cgroup.quantities.swap import SwapRules
from actors._host import machine
from proto.agent.settings import Settings
from proto.v1 import Pod

GIB = 1 << 30
SETTINGS = Settings()


def container(name: str = "c", requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def pod(*containers: dict[str, Any], **spec: Any) -> Pod:
    return msgspec.convert({"spec": {"containers": list(containers), **spec}}, Pod)


PROBED = pod(
    container("web", requests={"cpu": "50m", "memory": "16Mi"}, limits={"cpu": "100m", "memory": "32Mi"}),
)


def test_a_container_as_the_kubelet_asked_for_it() -> None:
    got = container_resources(
        PROBED,
        PROBED.spec.containers[0],
        SETTINGS,
        memory_capacity_bytes=24 * GIB,
        page_sizes=("2MB", "1GB"),
        swap=SwapRules(accounting=True),
    )
    assert got == LinuxResources(
        cpu_period=100_000,
        cpu_quota=10_000,
        cpu_shares=51,
        memory_limit_in_bytes=33_554_432,
        oom_score_adj=999,
        memory_swap_limit_in_bytes=33_554_432,
        hugepage_limits=(("2MB", 0), ("1GB", 0)),
    )
    message = linux_container_resources(got)
    assert (message.cpu_shares, message.oom_score_adj) == (51, 999)
    assert [limit.page_size for limit in message.hugepage_limits] == ["2MB", "1GB"]


HUGE = {"cpu": "100T", "memory": "100E", "hugepages-2Mi": "100E"}


def test_the_largest_limits_fit_into_the_message() -> None:
    huge = pod(container(requests={"cpu": "100m"}, limits=HUGE), container("d", limits=HUGE))
    got = container_resources(
        huge, huge.spec.containers[0], SETTINGS, memory_capacity_bytes=GIB, page_sizes=("2MB",),
        swap=SwapRules(accounting=True),
    )  # fmt: skip
    message = linux_container_resources(got)
    assert message.cpu_quota == message.memory_limit_in_bytes == message.memory_swap_limit_in_bytes == (1 << 63) - 1
    assert message.hugepage_limits[0].limit == (1 << 63) - 1
    whole = linux_container_resources(sandbox_resources(huge, SETTINGS))
    assert whole.cpu_quota == whole.memory_limit_in_bytes == (1 << 63) - 1


def test_a_sandbox_as_the_kubelet_asked_for_it() -> None:
    expected = LinuxResources(cpu_period=100_000, cpu_quota=10_000, cpu_shares=51, memory_limit_in_bytes=33_554_432)
    assert sandbox_resources(PROBED, SETTINGS) == expected
    assert overhead_resources(PROBED, SETTINGS) == LinuxResources()


@pytest.mark.parametrize(
    ("unified", "single", "files"),
    [(True, False, (("memory.oom.group", "1"),)), (True, True, ()), (False, False, ())],
)
def test_sandbox_on_cgroup_v2_is_killed_as_a_whole(unified: bool, single: bool, files: tuple[tuple[str, str]]) -> None:
    settings = Settings(single_process_oom_kill=single)
    plain, heavy = pod(container(limits=GUARANTEED)), pod(container(limits=GUARANTEED), overhead={"memory": "1Mi"})
    assert sandbox_resources(plain, settings, unified=unified).unified == files
    assert overhead_resources(heavy, settings, unified=unified).unified == files
    assert overhead_resources(plain, settings, unified=unified) == LinuxResources()


GUARANTEED, BURSTABLE = {"cpu": "1", "memory": "1Gi"}, {"memory": "1Gi"}


@pytest.mark.parametrize(
    ("request_memory", "limit_memory", "rules", "expected"),
    [
        ("1Gi", None, {}, "268435456"),  # a quarter of the memory, so a quarter of the swap
        ("2Gi", "3Gi", {}, "536870912"),
        ("1Gi", "1Gi", {}, "0"),  # as much as it may have
        (None, None, {}, "0"),
        ("1Gi", None, {"behavior": "NoSwap"}, "0"),
        ("1Gi", None, {"behavior": ""}, "0"),
        ("1Gi", None, {"accounting": False}, None),
        ("1Gi", None, {"unified": False}, None),
    ],
)
def test_swap(request_memory: Any, limit_memory: Any, rules: dict[str, Any], expected: str | None) -> None:
    requests = {"memory": request_memory} if request_memory else {}
    limits = {"memory": limit_memory} if limit_memory else {}
    # a neighbour keeps the pod Burstable
    subject = pod(container(requests=requests, limits=limits), container("d", requests={"cpu": "1"}))
    facts = {"behavior": "LimitedSwap", "unified": True, "accounting": True} | rules
    swap = SwapRules(**facts, memory_capacity_bytes=4 * GIB, swap_capacity_bytes=GIB)
    got = container_resources(subject, subject.spec.containers[0], SETTINGS, memory_capacity_bytes=4 * GIB, swap=swap)
    assert dict(got.unified).get("memory.swap.max") == expected
    assert dict(linux_container_resources(got).unified) == dict(got.unified)


@pytest.mark.parametrize(
    ("spec", "requests"),
    [({"priority": 2_000_000_000}, BURSTABLE), ({}, {}), ({}, GUARANTEED)],
    ids=["critical", "BestEffort", "Guaranteed"],
)
def test_pods_that_never_swap(spec: dict[str, Any], requests: dict[str, str]) -> None:
    limits = requests if requests == GUARANTEED else {}
    subject = pod(container(requests=requests, limits=limits), **spec)
    swap = SwapRules("LimitedSwap", True, True, memory_capacity_bytes=4 * GIB, swap_capacity_bytes=GIB)
    got = container_resources(subject, subject.spec.containers[0], SETTINGS, memory_capacity_bytes=4 * GIB, swap=swap)
    assert dict(got.unified)["memory.swap.max"] == "0"


def test_on_v1_memory_and_swap_are_limited_as_one() -> None:
    swap = SwapRules("LimitedSwap", unified=False, accounting=True)
    got = container_resources(PROBED, PROBED.spec.containers[0], SETTINGS, memory_capacity_bytes=GIB, swap=swap)
    assert (got.memory_swap_limit_in_bytes, got.unified) == (got.memory_limit_in_bytes, ())


@pytest.mark.parametrize(
    ("unified", "single", "killed_as_one"),
    [(True, None, True), (True, False, True), (True, True, False), (False, None, False), (False, False, False)],
)
def test_the_kernel_kills_a_container_as_a_whole_on_v2(unified: bool, single: bool | None, killed_as_one: bool) -> None:
    settings = Settings(single_process_oom_kill=single)
    got = container_resources(
        PROBED, PROBED.spec.containers[0], settings, memory_capacity_bytes=GIB, swap=SwapRules(unified=unified)
    )
    assert (dict(got.unified).get("memory.oom.group") == "1") is killed_as_one


def test_a_container_without_limits_has_those_of_its_pod() -> None:
    own = {"limits": {"cpu": "2", "memory": "2Gi", "hugepages-2Mi": "64Mi"}, "requests": {"cpu": "1"}}
    subject = pod(container(), container("d", limits={"cpu": "1"}), resources=own)
    first, second = (
        container_resources(subject, one, SETTINGS, memory_capacity_bytes=GIB, page_sizes=("2MB",))
        for one in subject.spec.containers
    )
    assert (first.cpu_quota, first.memory_limit_in_bytes) == (200_000, 2 * GIB)
    assert (second.cpu_quota, second.memory_limit_in_bytes) == (100_000, 2 * GIB)
    assert first.hugepage_limits == second.hugepage_limits == (("2MB", 64 << 20),)
    # without a request, a limit is one, whosever it is
    assert (first.cpu_shares, second.cpu_shares) == (2048, 1024)


@pytest.mark.parametrize(("milli", "shares"), [(1, 2), (2, 2), (10, 10), (100, 102), (1000, 1024), (250, 256)])
def test_shares_and_back(milli: int, shares: int) -> None:
    assert milli_cpu_to_shares(milli) == shares
    assert shares_to_milli_cpu(shares) == max(2, milli)
    assert quota_to_milli_cpu(milli_cpu_to_quota(milli), 100_000) == max(10, milli)
    assert (shares_to_milli_cpu(0), quota_to_milli_cpu(-1, 100_000)) == (0, 0)


def test_huge_pages_a_pod_may_use() -> None:
    requests = {"hugepages-2Mi": "64Mi", "memory": "1Gi"}
    subject = pod(container(requests=requests, limits=requests), container("d"))
    assert pod_limits(subject, SETTINGS, page_sizes=("2MB", "1GB")).huge_pages == (("2MB", 64 << 20), ("1GB", 0))
    assert pod_limits(pod(container()), SETTINGS, page_sizes=("2MB",)).huge_pages == (("2MB", 0),)


@pytest.mark.parametrize(
    ("kib", "names", "sizes"),
    [
        ((2048, 1048576), ["1Gi", "2Mi"], ("2MB", "1GB")),
        ((64, 2048, 32768, 1048576), ["1Gi", "32Mi", "2Mi", "64Ki"], ("64KB", "2MB", "32MB", "1GB")),  # arm64, 4 KiB
        ((2048, 32768, 1048576), ["1Gi", "32Mi", "2Mi"], ("2MB", "32MB", "1GB")),  # arm64, 16 KiB
        ((2048, 524288, 16777216), ["16Gi", "512Mi", "2Mi"], ("2MB", "512MB", "16GB")),  # arm64, 64 KiB
    ],
)
def test_huge_page_sizes_have_the_names_of_api_and_kernel(
    tmp_path: Path, kib: tuple[int, ...], names: list[str], sizes: tuple[str, ...]
) -> None:
    for size in kib:
        (tmp_path / f"hugepages-{size}kB").mkdir()
        (tmp_path / f"hugepages-{size}kB/nr_hugepages").write_text("3\n")
    found = machine.huge_pages(str(tmp_path))
    assert list(found) == [f"hugepages-{name}" for name in names]
    assert list(found.values()) == [3 * size * 1024 for size in reversed(kib)]
    assert huge_page_sizes(str(tmp_path)) == sizes
    asked = {f"hugepages-{name}": name for name in names}
    subject = pod(container(requests=asked, limits=asked))
    assert pod_limits(subject, SETTINGS, page_sizes=sizes).huge_pages == tuple(
        (name, size * 1024) for name, size in zip(sizes, kib, strict=True)
    )


def test_huge_pages_a_container_may_use() -> None:
    subject = pod(container(limits={"hugepages-2Mi": "64Mi", "memory": "1Gi"}))
    got = container_resources(
        subject, subject.spec.containers[0], SETTINGS, memory_capacity_bytes=GIB, page_sizes=("2MB", "1GB")
    )
    assert got.hugepage_limits == (("2MB", 64 << 20), ("1GB", 0))


@pytest.mark.parametrize(
    ("own", "limits"),
    [
        ({}, (64, 2048)),
        ({"memory": "1Gi"}, (64, 2048)),
        ({"hugepages-2Mi": "4Mi"}, (4, 2048)),
        ({"hugepages-2Mi": "0"}, (0, 2048)),
        ({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}, (4, 1024)),
    ],
)
def test_pages_of_the_pod_are_for_containers_without_a_limit(own: dict[str, str], limits: tuple[int, int]) -> None:
    of_pod = {"limits": {"hugepages-2Mi": "64Mi", "hugepages-1Gi": "2Gi", "cpu": "1"}}
    subject = pod(container(limits=own), resources=of_pod)
    got = container_resources(
        subject, subject.spec.containers[0], SETTINGS, memory_capacity_bytes=GIB, page_sizes=("2MB", "1GB", "64kB")
    )
    assert got.hugepage_limits == (("2MB", limits[0] << 20), ("1GB", limits[1] << 20), ("64kB", 0))


def test_without_cfs_quota_no_quota_is_asked_for() -> None:
    settings = Settings(cpu_cfs_quota=False)
    got = sandbox_resources(PROBED, settings)
    assert (got.cpu_quota, got.cpu_period, got.cpu_shares) == (0, 0, 51)


@pytest.mark.parametrize(
    ("milli", "shares", "quota"), [(0, 2, 0), (1, 2, 1000), (10, 10, 1000), (100, 102, 10_000), (2500, 2560, 250_000)]
)
def test_shares_and_quota(milli: int, shares: int, quota: int) -> None:
    assert (milli_cpu_to_shares(milli), milli_cpu_to_quota(milli)) == (shares, quota)


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1024, 39), (262_144, 10_000), (999_999, 10_000), (0, 1)])
def test_weight_of_shares(shares: int, weight: int) -> None:
    assert shares_to_weight(shares) == weight


def test_shares_of_a_weight_have_that_weight() -> None:
    weights = range(1, 10_001)
    assert [shares_to_weight(weight_to_shares(weight)) for weight in weights] == list(weights)


@given(st.integers(0, 10**6))
def test_more_cpu_never_gets_less(milli: int) -> None:
    assert milli_cpu_to_shares(milli) <= milli_cpu_to_shares(milli + 1) <= 262_144
    assert milli_cpu_to_quota(milli) <= milli_cpu_to_quota(milli + 1)


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (pod(container()), 1000),
        (pod(container(requests=BOTH, limits=BOTH)), -997),
        (pod(container(requests={"memory": "1Gi"})), 750),
        (pod(container(requests={"memory": "1"})), 999),
        (pod(container(requests={"memory": "4Gi"})), 3),
        (pod(container(requests={"cpu": "1"})), 999),
        # half a pod's own request is spare for each of two containers
        (pod(container(), container("d"), resources={"requests": {"memory": "2Gi"}}), 750),
    ],
)
def test_oom_score_of_the_first_container(subject: Pod, expected: int) -> None:
    assert oom_score_adj(subject, subject.spec.containers[0], 4 * GIB) == expected


def test_a_node_critical_pod_is_killed_last() -> None:
    subject = pod(container(), priority=2_000_001_000, priorityClassName="system-node-critical")
    assert oom_score_adj(subject, subject.spec.containers[0], 4 * GIB) == -997


def test_sidecar_scores_no_higher_than_its_main_containers() -> None:
    sidecar = container("s", requests={"memory": "1Mi"}, restartPolicy="Always")
    subject = pod(
        container(requests={"memory": "1Gi"}), container("d", requests={"memory": "2Gi"}), initContainers=[sidecar]
    )
    assert oom_score_adj(subject, subject.spec.init_containers[0], 4 * GIB) == 750


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (pod(container()), PodLimits(cpu_shares=2)),
        (PROBED, PodLimits(51, 10_000, 100_000, 33_554_432)),
        (pod(container(requests=BOTH, limits=BOTH)), PodLimits(1024, 100_000, 100_000, GIB)),
        (pod(container(requests=BOTH, limits={"cpu": "2"})), PodLimits(1024, 200_000, 100_000)),
        (pod(container(requests=BOTH, limits={"memory": "2Gi"})), PodLimits(1024, memory_bytes=2 * GIB)),
        (pod(container(requests=BOTH, limits=BOTH), container("d")), PodLimits(1024)),
        (
            pod(container(requests=BOTH), resources={"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}),
            PodLimits(3072, 400_000, 100_000),
        ),
    ],
)
def test_limits_of_a_pods_cgroup(subject: Pod, expected: PodLimits) -> None:
    assert pod_limits(subject, SETTINGS) == expected


def test_pod_cgroup_without_cfs_quota_and_with_a_pids_limit() -> None:
    got = pod_limits(PROBED, Settings(cpu_cfs_quota=False), 100)
    assert (got.cpu_quota_us, got.pids) == (-1, 100)


def test_only_cpu_memory_and_huge_pages_are_the_pods_own() -> None:
    amounts = {"cpu": "2", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi", "example.com/gpu": "1"}
    subject = pod(container(requests={"ephemeral-storage": "2Gi"}), resources={"requests": amounts, "limits": amounts})
    own = {"cpu": "2", "hugepages-2Mi": str(4 << 20)}
    assert totals.requests(subject) == own | {"ephemeral-storage": str(2 * GIB)}
    assert totals.limits(subject) == own


def test_totals_are_the_larger_of_main_and_init_plus_sidecars() -> None:
    subject = pod(
        container(requests={"cpu": "300m"}),
        container("d", requests={"cpu": "0.2"}),
        initContainers=[
            container("i", requests={"cpu": "1"}),
            container("s", requests={"cpu": "100m"}, restartPolicy="Always"),
            container("j", requests={"cpu": "700m", "memory": "8Mi"}),
        ],
        overhead={"cpu": "1m"},
    )
    assert totals.requests(subject, overhead=False) == {"cpu": "1", "memory": str(8 << 20)}
    assert totals.requests(subject) == {"cpu": "1001000000n", "memory": str(8 << 20)}
