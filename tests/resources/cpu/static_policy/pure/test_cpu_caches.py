"""Upstream's cases of prefer-align-cpus-by-uncorecache (policy_static_test.go)."""

import pytest

from actors.resources.machine.cpusets import parse, printed
from actors.resources.model.hints import ANY
from tests.resources.cpu.machines import (
    CACHES_32,
    CACHES_DUAL_64,
    CACHES_LARGE,
    CACHES_LARGE_HT,
    CACHES_NODES,
    CACHES_SERVER,
    CACHES_SMALL,
    CACHES_SMALL_HT,
    ONE_CACHE,
    ONE_CACHE_PER_SOCKET,
)
from tests.resources.cpu.pods import container, make_pod
from tests.resources.cpu.static_policy.static_cases import policy, state, without

FULL, BY_CACHE, STRICT = "full-pcpus-only", "prefer-align-cpus-by-uncorecache", "strict-cpu-reservation"
SERVER = "0,1,96,97,192,193,288,289"


def caches(topology, *wanted):
    return printed({cpu for cpu, its in topology.cpus.items() if its.cache in wanted})


PARTLY_USED = caches(CACHES_SERVER, 0, 12)

ALIGNED = [
    (CACHES_SERVER, SERVER, PARTLY_USED, ["16"], {1}),
    (CACHES_SERVER, SERVER, PARTLY_USED, ["12", "2"], {1}),
    (CACHES_SERVER, SERVER, PARTLY_USED, ["2", "12"], {1}),
    (CACHES_SERVER, SERVER, PARTLY_USED, ["10", "2", "2", "2"], {1}),
    (CACHES_SERVER, SERVER, "", ["12", "2"], {0, 1}),
    (CACHES_SMALL_HT, "0,1,64,65", "", ["8"], {1}),
    (CACHES_SMALL_HT, "0,1,64,65", caches(CACHES_SMALL_HT, 1), ["12"], {0, 2}),
    (CACHES_SMALL, "0-3", caches(CACHES_SMALL, 2, 3, 5), ["12"], {1, 4, 6}),
    (CACHES_DUAL_64, "0,1,32,33", caches(CACHES_DUAL_64, 1), ["4", "2"], {0}),
    (CACHES_DUAL_64, "0,1,32,33", caches(CACHES_DUAL_64, 1), ["4", "4"], {0, 2}),
    (CACHES_LARGE_HT, "0,1,128,129", "8,9,136,137", ["12", "12"], {0, 1}),
    (CACHES_LARGE_HT, "0,1,128,129", "8,9,136,137", ["14", "14"], {2, 3}),
    (CACHES_NODES, "0-3", "", ["48"], {6, 7, 8, 9, 10, 11}),
    (CACHES_LARGE, "0-3", "", ["8"], {1}),
    (CACHES_32, "0-3", "8-11,16-19,24-27", ["8"], {0, 1}),
]

SETS = [
    (ONE_CACHE_PER_SOCKET, [FULL], "0,1,120,121", "", "6", "2-4,122-124"),
    (ONE_CACHE, [FULL], "0,1", "6-9,12-15,18,19", "12", "2-5,10-11,16-17,20-23"),
    (CACHES_32, [FULL], "0-3", "", "5", "8-12"),
    (CACHES_SMALL_HT, [], "0,1,64,65", "", "3", "2-3,66"),
    (CACHES_SMALL_HT, [], "0,1,64", "", "3", "2,65-66"),
    (CACHES_SMALL_HT, [], "0,1,64", "", "4", "4-5,68-69"),
    (CACHES_SMALL_HT, [], "0,1,64", "", "11", "2,4-7,65-66,68-71"),
    (ONE_CACHE_PER_SOCKET, [], "0,1,120", "128-239", "5", "2-3,121-123"),
    (ONE_CACHE_PER_SOCKET, [], "0,1,120", "128-239", "4", "2-3,122-123"),
    (CACHES_SMALL_HT, [STRICT], "0,1,64,65", "", "2", "2,66"),
    (ONE_CACHE_PER_SOCKET, [STRICT], "0,1,120,121", "", "4", "2-3,122-123"),
]


def allocate(topology, options, reserved, used, asked):
    static = policy(topology, BY_CACHE, *options, reserved=reserved)
    start = state(without(topology, ",".join(filter(None, (reserved, used)))))
    pod = make_pod("p", *(container(f"c{number}", cpus) for number, cpus in enumerate(asked)))
    for each in pod.spec.containers:
        static.allocate(start, pod, each, ANY)
    return [start.of("p", each.name) for each in pod.spec.containers]


@pytest.mark.parametrize(("topology", "reserved", "used", "asked", "expected"), ALIGNED)
def test_containers_are_aligned_to_upstreams_caches(topology, reserved, used, asked, expected):
    sets = allocate(topology, [FULL], reserved, used, asked)
    assert {topology.cpus[cpu].cache for cpus in sets for cpu in cpus} == expected


@pytest.mark.parametrize(("topology", "options", "reserved", "used", "asked", "expected"), SETS)
def test_sets_on_caches_are_upstreams(topology, options, reserved, used, asked, expected):
    (found,) = allocate(topology, options, reserved, used, [asked])
    assert printed(found) == expected
    assert not found & parse(reserved)
