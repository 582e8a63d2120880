"""Containers with whole cores, and with CPUs of one L3 cache: which ones count, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._metrics.kubelet import ALIGNED, ALIGNMENT_FAILURES
from actors.resources.cpu.manager import CpuManager, CpuSettings
from actors.resources.machine.topology import Cpu, Topology
from actors.resources.model.counting import Counted
from actors.resources.model.hints import ANY
from actors.resources.model.provider import AllocationError
from proto.v1 import Pod
from tests.resources.cpu.pods import at_once, container, make_pod, run, simple

CORES, CACHE = ("container", "physical_cpu"), ("container", "uncore_cache")
WHOLE, NEAR = "full-pcpus-only", "prefer-align-cpus-by-uncorecache"
TWO_CACHES = Topology({number: Cpu(core=number // 2, socket=0, node=0, cache=number // 8) for number in range(16)})
"""16 CPUs in 8 cores; each half of them has an L3 cache."""


@pytest.fixture(autouse=True)
def _no_counts() -> Iterator[None]:
    ALIGNED.replace(())
    ALIGNMENT_FAILURES.replace(())
    yield
    ALIGNED.replace(())
    ALIGNMENT_FAILURES.replace(())


def manager(directory: Path, *options: str, counted: Counted | None = None, pod_level: bool = False) -> CpuManager:
    settings = CpuSettings(
        policy="static",
        reserved_cpus=frozenset({0, 1}),
        options=dict.fromkeys(options, "true"),
        pod_level=pod_level,
        topology_scope="pod" if pod_level else "container",
    )
    return CpuManager(TWO_CACHES, settings, str(directory), at_once, counted)


def allocate(cpus: CpuManager, pod: Pod) -> None:
    for one in (*pod.spec.init_containers, *pod.spec.containers):
        run(cpus.allocate(pod, one, ANY))


def aligned() -> dict[tuple[str, ...], float]:
    return {labels: value for labels, (value,) in ALIGNED.take().items()}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), set()),
        ((WHOLE,), {(ALIGNED.name, CORES), (ALIGNMENT_FAILURES.name, CORES)}),
        ((NEAR,), {(ALIGNED.name, CACHE)}),
        ((WHOLE, NEAR), {(ALIGNED.name, CORES), (ALIGNMENT_FAILURES.name, CORES), (ALIGNED.name, CACHE)}),
    ],
)
def test_options_decide_which_series_there_are(
    tmp_path: Path, options: tuple[str, ...], expected: set[tuple[str, tuple[str, ...]]]
) -> None:
    assert {(counter.name, labels) for counter, labels in manager(tmp_path, *options).series()} == expected


@pytest.mark.parametrize(
    ("options", "pod", "expected"),
    [
        ((), simple("p", "c", "2"), {}),
        ((WHOLE,), simple("p", "c", "2"), {CORES: 1}),
        ((WHOLE,), simple("p", "c", "1500m"), {}),
        ((WHOLE,), make_pod("p", container("a", "2"), container("b", "4"), init=[container("i", "2")]), {CORES: 3}),
        ((NEAR,), simple("p", "c", "1"), {CACHE: 1}),
        ((NEAR,), simple("p", "c", "8"), {CACHE: 1}),
        ((NEAR,), simple("p", "c", "10"), {}),
        ((WHOLE, NEAR), make_pod("p", container("a", "2"), container("b", "10")), {CORES: 2, CACHE: 1}),
    ],
)
def test_containers_with_aligned_cpus_count(
    tmp_path: Path, options: tuple[str, ...], pod: Pod, expected: dict[tuple[str, str], float]
) -> None:
    allocate(manager(tmp_path, *options), pod)
    assert aligned() == expected
    assert ALIGNMENT_FAILURES.take() == {}


def test_pod_that_waits_counts_once(tmp_path: Path) -> None:
    counted = Counted()
    cpus, pod = manager(tmp_path, WHOLE, NEAR, counted=counted), simple("p", "c", "2")
    for _ in range(3):
        allocate(cpus, pod)
        cpus.release("p")
    assert aligned() == {CORES: 1, CACHE: 1}
    counted.forget("p")
    allocate(cpus, pod)
    assert aligned() == {CORES: 2, CACHE: 2}


@pytest.mark.parametrize(("options", "failures"), [((WHOLE,), [CORES]), ((), [])])
def test_failure_names_its_series_and_counts_nothing(
    tmp_path: Path, options: tuple[str, ...], failures: list[tuple[str, ...]]
) -> None:
    with pytest.raises(AllocationError) as failed:
        allocate(manager(tmp_path, *options), simple("p", "c", "15"))
    found = [labels for counter, labels in failed.value.counts if counter is ALIGNMENT_FAILURES]
    assert (found, ALIGNED.take(), ALIGNMENT_FAILURES.take()) == (failures, {}, {})


def test_pod_with_its_own_cpus_counts_once_for_their_cache(tmp_path: Path) -> None:
    """As in the kubelet, which counts no whole cores of it."""
    cpus = manager(tmp_path, WHOLE, NEAR, pod_level=True)
    allocate(cpus, make_pod("p", container("a", "2"), container("b", "2"), own="6"))
    assert aligned() == {CACHE: 1}
