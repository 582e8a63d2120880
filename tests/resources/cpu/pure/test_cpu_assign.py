"""Upstream's cases of takeByTopologyNUMAPacked and takeByTopologyNUMADistributed (cpu_assignment_test.go)."""

import pytest

from actors.resources.cpu.assign import NoCpusError, take_distributed, take_packed
from actors.resources.machine.cpusets import parse, printed
from tests.resources.cpu.machines import (
    CACHES,
    CACHES_DUAL,
    CACHES_HT,
    CACHES_NUMA,
    DUAL_HT,
    DUAL_NO_HT,
    FOUR_WAY_HT,
    LARGE_HT,
    MULTI_NUMA_HT,
    SINGLE_HT,
)

COMMON = [
    (SINGLE_HT, "0-7", 0, ""),
    (SINGLE_HT, "0-7", 1, "0"),
    (SINGLE_HT, "1,3,5,6,7", 1, "6"),
    (SINGLE_HT, "0-7", 2, "0,4"),
    (SINGLE_HT, "0-7", 8, "0-7"),
    (SINGLE_HT, "0-3,6", 2, "2,6"),
    (DUAL_HT, "0-11", 6, "0,2,4,6,8,10"),
    (MULTI_NUMA_HT, "0-79", 40, "0-19,40-59"),
    (MULTI_NUMA_HT, "0-79", 20, "0-9,40-49"),
    (MULTI_NUMA_HT, "10-39,50-79", 20, "10-19,50-59"),
    (MULTI_NUMA_HT, "0-79", 60, "0-29,40-69"),
    (MULTI_NUMA_HT, "1-39,41-79", 60, "10-39,50-79"),
]

PACKED = [
    (DUAL_HT, "1-5,7-11", 1, "2"),
    (DUAL_HT, "0-11", 8, "0-2,4,6-8,10"),
    (MULTI_NUMA_HT, "0-79", 64, "0-31,40-71"),
]

BY_CACHE = [
    (CACHES, "1-15", 10, "1-2,4-11"),
    (DUAL_HT, "1-5,7-11", 1, "1"),
    (CACHES_DUAL, "0-15", 4, "0-3"),
    (CACHES_DUAL, "2-15", 6, "2-7"),
    (CACHES_DUAL, "8-15", 4, "8-11"),
    (CACHES_NUMA, "3,4-8,12", 2, "4-5"),
    (CACHES_HT, "2-3,10-11,4-7,12-15", 6, "4-6,12-14"),
    (CACHES_HT, "1-7,9-15", 10, "1,4-7,9,12-15"),
]

SPREAD = [
    (SINGLE_HT, "0-7", 3, "0-2"),
    (DUAL_HT, "0-11", 2, "0,2"),
    (DUAL_HT, "0-11", 3, "0,2,4"),
    (DUAL_HT, "0-11", 6, "0,2,4,6,8,10"),
    (DUAL_HT, "0-11", 8, "0-4,6,8,10"),
    (DUAL_NO_HT, "0-7", 2, "0-1"),
    (MULTI_NUMA_HT, "0-79", 8, "0-7"),
    (FOUR_WAY_HT, "0-287", 12, "0-2,9-10,13-14,21-22,25-26,33"),
]

LIVE = "0,128,30,31,158,159,43-47,171-175,62,63,190,191,75-79,203-207,94,96,222,223,101-111,229-239,126,127,254,255"
UNEVEN = "0-8,10-18,20-39,40-48,50-58,60-79"

DISTRIBUTED = [
    *((topology, free, count, 1, expected) for topology, free, count, expected in COMMON),
    (DUAL_HT, "0-11", 8, 1, "0-3,6-9"),
    (MULTI_NUMA_HT, "0-79", 64, 1, "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77"),
    (MULTI_NUMA_HT, "0-79", 48, 1, "0-7,10-17,20-27,40-47,50-57,60-67"),
    (MULTI_NUMA_HT, "1-29,32-39,41-69,72-79", 48, 1, "1-8,10-17,20-27,41-48,50-57,60-67"),
    (MULTI_NUMA_HT, "2-29,31-39,42-69,71-79", 48, 1, "10-17,20-27,31-38,50-57,60-67,71-78"),
    (
        MULTI_NUMA_HT,
        "0-2,10-12,20-22,30-32,40-41,50-51,60-61,70-71",
        16,
        1,
        "0-1,10-11,20-21,30-31,40-41,50-51,60-61,70-71",
    ),
    (DUAL_HT, "1-5,7-11", 1, 1, "1"),
    (DUAL_HT, "1-5,7-11", 1, 2, "2"),
    (MULTI_NUMA_HT, "0-79", 26, 1, "0-6,10-16,40-45,50-55"),
    (MULTI_NUMA_HT, "0-79", 26, 2, "0-6,10-15,40-46,50-55"),
    (MULTI_NUMA_HT, "0-79", 62, 1, "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76"),
    (MULTI_NUMA_HT, "0-79", 62, 2, "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"),
    (MULTI_NUMA_HT, UNEVEN, 62, 1, "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77"),
    (MULTI_NUMA_HT, UNEVEN, 62, 2, "0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77"),
    (
        MULTI_NUMA_HT,
        "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76",
        34,
        1,
        "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74",
    ),
    (LARGE_HT, LIVE, 28, 1, "43-47,75-79,96,101-105,171-174,203-206,229-232"),
]

TOO_FEW = "not enough cpus available to satisfy request: requested=5, available=4"


@pytest.mark.parametrize(("topology", "free", "count", "expected"), COMMON + PACKED)
def test_packed_sets_are_upstreams(topology, free, count, expected):
    assert printed(take_packed(topology, parse(free), count)) == expected


@pytest.mark.parametrize(("topology", "free", "count", "expected"), BY_CACHE)
def test_sets_by_cache_are_upstreams(topology, free, count, expected):
    assert printed(take_packed(topology, parse(free), count, by_cache=True)) == expected


@pytest.mark.parametrize(("topology", "free", "count", "expected"), SPREAD)
def test_sets_over_cores_are_upstreams(topology, free, count, expected):
    assert printed(take_packed(topology, parse(free), count, spread=True)) == expected


@pytest.mark.parametrize(("topology", "free", "count", "group", "expected"), DISTRIBUTED)
def test_sets_over_nodes_are_upstreams(topology, free, count, group, expected):
    assert printed(take_distributed(topology, parse(free), count, group)) == expected


@pytest.mark.parametrize("take", [take_packed, take_distributed])
def test_too_few_cpus_fail_in_upstreams_words(take):
    with pytest.raises(NoCpusError, match=f"^{TOO_FEW}$"):
        take(SINGLE_HT, parse("0,2,4,6"), 5)
