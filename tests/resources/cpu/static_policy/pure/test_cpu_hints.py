"""Upstream's cases of topology hints (topology_hints_test.go)."""

import pytest

from actors.resources.model.hints import Hint
from tests.resources.cpu.machines import HINTS, MULTI_NUMA_HT
from tests.resources.cpu.pods import container, make_pod, simple
from tests.resources.cpu.static_policy.static_cases import policy, state

Y, N = True, False

CASES = [
    ("2", {}, "2-11", [((0,), Y), ((1,), Y), ((0, 1), N)]),
    ("5", {}, "2-11", [((1,), Y), ((0, 1), N)]),
    ("7", {}, "2-11", [((0, 1), Y)]),
    ("11", {}, "2-11", []),
    ("2", {}, "0,3", [((0, 1), N)]),
    ("5", {}, "0-3", []),
    ("2", {"c": "0,6"}, "", [((0,), Y), ((0, 1), N)]),
    ("2", {"c": "3,9"}, "", [((1,), Y), ((0, 1), N)]),
    ("11", {"c": "0-10"}, "", [((0, 1), Y)]),
    ("2", {"c": "0,3,6,9"}, "", []),
    ("11", {"c": "0,3,6,9"}, "", []),
]

LARGER = [((0, 2), N), ((0, 3), N), ((0, 1, 2), N), ((0, 1, 3), N), ((0, 2, 3), N), ((0, 1, 2, 3), N)]

BY_SOCKET = [
    ([], "2", "2,3,11", [((0,), Y), ((0, 1), N), *LARGER]),
    (["align-by-socket"], "2", "2,3,11", [((0,), Y), ((0, 1), Y), *LARGER]),
    (["align-by-socket"], "41", "0-28,40-57", [((0, 1, 2), Y), ((0, 1, 2, 3), Y)]),
]


def listed(hints):
    return [Hint(frozenset(nodes), preferred=preferred) for nodes, preferred in hints]


@pytest.mark.parametrize(("asked", "held", "shared", "expected"), CASES)
def test_hints_of_containers_and_pods_are_upstreams(asked, held, shared, expected):
    static, start, pod = policy(HINTS), state(shared, held), simple("p", "c", asked)
    assert static.container_hints(start, pod, pod.spec.containers[0]) == {"cpu": listed(expected)}
    assert static.pod_hints(start, pod) == {"cpu": listed(expected)}


@pytest.mark.parametrize(("options", "asked", "shared", "expected"), BY_SOCKET)
def test_hints_by_socket_are_upstreams(options, asked, shared, expected):
    pod = simple("p", "c", asked)
    assert policy(MULTI_NUMA_HT, *options).pod_hints(state(shared), pod) == {"cpu": listed(expected)}


def test_container_of_the_shared_pool_has_no_preference():
    pod = simple("p", "c", "1500m")
    static = policy(HINTS)
    assert static.container_hints(state("0-11"), pod, pod.spec.containers[0]) == static.pod_hints(state("0-11"), pod)
    assert static.pod_hints(state("0-11"), pod) == {}


def test_hints_keep_to_the_nodes_of_reusable_cpus():
    pod = make_pod("p", container("app", "2"), init=[container("init", "2")])
    start = state("1-5,7-11", {"init": "0,6"})
    assert policy(HINTS).container_hints(start, pod, pod.spec.containers[0]) == {
        "cpu": listed([((0,), Y), ((0, 1), N)])
    }


def test_hints_count_no_reserved_cpus():
    pod = simple("p", "c", "6")
    assert policy(HINTS, reserved="0").container_hints(state("0-11"), pod, pod.spec.containers[0]) == {
        "cpu": listed([((1,), Y), ((0, 1), N)])
    }
