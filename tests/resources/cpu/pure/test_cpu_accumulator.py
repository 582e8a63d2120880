"""Upstream's cases of cpuAccumulator: which units are free, and in which order CPUs are taken."""

import pytest

from actors.resources.cpu.accumulator import Accumulator
from actors.resources.machine.cpusets import parse
from tests.resources.cpu.machines import (
    DUAL_HT,
    MULTI_NUMA_HT,
    MULTI_SOCKET_HT,
    SINGLE_HT,
    TRIPLE_HT,
)

FREE = [
    ("socket", SINGLE_HT, "0-7", [0]),
    ("socket", SINGLE_HT, "1-7", []),
    ("socket", DUAL_HT, "0-11", [0, 1]),
    ("socket", DUAL_HT, "0-9,11", [1]),
    ("socket", DUAL_HT, "0,2-9,11", []),
    ("socket", MULTI_NUMA_HT, "0-79", [0, 1]),
    ("socket", MULTI_NUMA_HT, "1-79", [1]),
    ("socket", MULTI_NUMA_HT, "1-78", []),
    ("socket", MULTI_NUMA_HT, "1-9,11-79", [1]),
    ("socket", MULTI_NUMA_HT, "1-59,61-79", []),
    ("socket", MULTI_SOCKET_HT, "0-79", [0, 1, 2, 3]),
    ("socket", MULTI_SOCKET_HT, "0-19,21-79", [0, 1, 3]),
    ("socket", MULTI_SOCKET_HT, "0-59,61-78", [0, 1]),
    ("socket", MULTI_SOCKET_HT, "1-19,21-38,41-60,61-78", [1]),
    ("socket", MULTI_SOCKET_HT, "0-40,42-49,51-68,71-79", []),
    ("node", SINGLE_HT, "0-7", [0]),
    ("node", SINGLE_HT, "1-7", []),
    ("node", DUAL_HT, "0-11", [0, 1]),
    ("node", DUAL_HT, "0-9,11", [1]),
    ("node", DUAL_HT, "0,2-9,11", []),
    ("node", MULTI_NUMA_HT, "0-79", [0, 1, 2, 3]),
    ("node", MULTI_NUMA_HT, "1-79", [1, 2, 3]),
    ("node", MULTI_NUMA_HT, "1-9,11-79", [2, 3]),
    ("node", MULTI_NUMA_HT, "1-59,61-79", [1, 3]),
    ("node", MULTI_NUMA_HT, "1-9,11-59,61-79", [3]),
    ("node", MULTI_NUMA_HT, "1-9,11-59,61-78", []),
    ("node", MULTI_SOCKET_HT, "0-79", [0, 1]),
    ("node", MULTI_SOCKET_HT, "0-9,11-79", [1]),
    ("node", MULTI_SOCKET_HT, "0-9,11-59,61-79", []),
    ("core", SINGLE_HT, "0-7", [0, 1, 2, 3]),
    ("core", SINGLE_HT, "0-2,4-6", [0, 1, 2]),
    ("core", SINGLE_HT, "0-6", [0, 1, 2]),
    ("core", SINGLE_HT, "", []),
    ("core", SINGLE_HT, "0-3", []),
    ("core", DUAL_HT, "0-11", [0, 2, 4, 1, 3, 5]),
    ("core", DUAL_HT, "1-5,7-11", [2, 4, 1, 3, 5]),
    ("core", DUAL_HT, "2-5,8-11", [2, 4, 3, 5]),
]

THREADS = [
    (SINGLE_HT, "0-7", [0, 4, 1, 5, 2, 6, 3, 7]),
    (SINGLE_HT, "3-7", [4, 5, 6, 3, 7]),
    (DUAL_HT, "0-11", [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
    (DUAL_HT, "1-11", [6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
    (DUAL_HT, "1-5,7-11", [2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
    (TRIPLE_HT, "0-3,6-13", [12, 13, 0, 1, 2, 3, 6, 7, 8, 9, 10, 11]),
]

TAKEN = [
    ("0-7", [""], 1, False, False),
    ("", [""], 1, False, True),
    ("0-7", ["0"], 1, True, False),
    ("0-7", ["0"], 2, False, False),
    ("0-2", ["0", "1"], 4, False, True),
    ("0-7", list("01234567"), 8, True, False),
]


@pytest.mark.parametrize(("level", "topology", "free", "expected"), FREE)
def test_units_are_free_as_upstream(level, topology, free, expected):
    found = Accumulator(topology, parse(free), 0).whole(level)
    assert (sorted(found) if level == "socket" else found) == expected


@pytest.mark.parametrize(("topology", "free", "expected"), THREADS)
def test_threads_are_ordered_as_upstream(topology, free, expected):
    assert Accumulator(topology, parse(free), 0).threads() == expected


@pytest.mark.parametrize(("free", "steps", "count", "satisfied", "failed"), TAKEN)
def test_taking_counts_what_is_needed(free, steps, count, satisfied, failed):
    accumulator = Accumulator(SINGLE_HT, parse(free), count)
    for step in steps:
        accumulator.take(parse(step))
    taken = parse(",".join(filter(None, steps)))
    assert accumulator.taken == taken
    assert accumulator.needed == count - len(taken)
    assert (accumulator.satisfied, accumulator.failed) == (satisfied, failed)
    assert not taken & set(accumulator.threads())
