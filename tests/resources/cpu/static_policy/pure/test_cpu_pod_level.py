"""Upstream's cases of pods with resources of their own, and of the CPUs that a pod needs (KEP-5526)."""

import pytest

from actors.resources.cpu.requests import Requests
from actors.resources.machine.cpusets import parse, printed
from actors.resources.model.hints import ANY, Hint
from actors.resources.model.pod_level import EmptyPoolError
from actors.resources.model.provider import AllocationError
from tests.resources.cpu.machines import DUAL_HT, EIGHT, TWO_NODES
from tests.resources.cpu.pods import container, make_pod
from tests.resources.cpu.static_policy.static_cases import policy, state, without

NODE_0 = Hint(frozenset({0}), preferred=True)
SHARED = (
    "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
)


def app(name, cpus=""):
    return container(name, cpus)


def side(name, cpus=""):
    return container(name, cpus, sidecar=True)


DIVIDED = [
    ("2", [], [app("c", "1")], {"c": "2"}, "0-1,3-7,9-11"),
    ("1", [], [app("s")], {"s": "6"}, "0-5,7-11"),
    ("3", [], [app("a", "1"), app("b", "1"), app("s")], {"a": "6", "b": "2", "s": "8"}, "0-1,3-5,7,9-11"),
    (
        "2",
        [app("i", "1"), app("j", "1")],
        [app("a", "1"), app("b", "1")],
        {"i": "2", "j": "2", "a": "2", "b": "8"},
        "0-1,3-7,9-11",
    ),
    (
        "3",
        [app("i"), side("r", "1"), app("j")],
        [app("a", "1"), app("s")],
        {"i": "2,6,8", "r": "6", "j": "2,8", "a": "2", "s": "8"},
        "0-1,3-5,7,9-11",
    ),
    (
        "3",
        [app("i"), side("r"), app("j")],
        [app("a", "1"), app("s")],
        {"i": "2,6,8", "r": "2,8", "j": "2,6,8", "a": "6", "s": "2,8"},
        "0-1,3-5,7,9-11",
    ),
]

POOLS = [
    ("4", [], [app("a", "2"), app("s")], True),
    ("4", [], [app("a", "2"), app("b", "2")], True),
    ("4", [], [app("s"), app("t")], True),
    ("6", [], [app("a", "3"), app("b", "2"), container("s", "500m", "1000m"), app("t")], True),
    ("5", [], [app("a", "3"), app("b", "2"), app("s")], False),
    ("2", [app("i", "1"), side("r", "1")], [app("s")], True),
    ("2", [app("i", "2")], [app("a", "2")], True),
    ("2", [side("r", "2"), app("i")], [], False),
    ("2", [app("i"), side("r", "2")], [], True),
    ("2", [side("r", "2"), side("s")], [], False),
    ("2", [side("r", "1")], [app("a", "1")], True),
    ("2", [side("r", "1"), app("i", "2")], [app("a", "1")], False),
]


def guaranteed(*cpus):
    return [app(f"a{number}", each) for number, each in enumerate(cpus)]


SUMS = [
    (["0"], ["0"], 0),
    (["0"], ["2"], 0),
    (["2"], ["0"], 0),
    (["2"], ["2"], 2),
    (["5"], ["5"], 5),
    (["2"], ["5"], 5),
    (["5"], ["2"], 5),
    (["2", "4"], ["2", "4"], 6),
    ([side("r", "1")], ["1"], 2),
    ([app("i", "5"), side("r", "1"), side("s", "2"), side("t", "3")], ["1"], 7),
    ([app("i", "5"), side("r", "1"), side("s", "2"), app("j", "5"), side("t", "3")], ["1"], 8),
    ([side("r", "10"), app("i", "200")], ["100"], 210),
]


@pytest.mark.parametrize(("own", "init", "containers", "expected", "shared"), DIVIDED)
def test_pods_cpus_are_divided_as_upstream(own, init, containers, expected, shared):
    static, start = policy(DUAL_HT, reserved="0", pod_scope=True), state("0-11")
    pod = make_pod("p", *containers, init=init, own=own)
    for each in (*init, *containers):
        static.allocate(start, pod, each, NODE_0)
    assert {name: printed(cpus) for name, cpus in start.containers["p"].items()} == expected
    assert printed(start.shared) == shared
    assert static.problem(start) == ""
    for name in expected:
        start.remove_container("p", name)
    assert start == state("0-11")


def test_part_of_a_pods_cpus_is_exclusive_if_asked_for():
    static, start = policy(DUAL_HT, reserved="0", pod_scope=True), state("0-11")
    pod = make_pod("p", app("a", "1"), app("s"), own="2")
    static.allocate(start, pod, pod.spec.containers[0], NODE_0)
    assert [static.is_exclusive(start, pod, each) for each in pod.spec.containers] == [True, False]


def lasting(*cpus):
    return [app(f"c{number}", each) for number, each in enumerate(cpus, 1)]


RESTORED = [
    ("4", [], lasting("2", "2"), "1-4", {"c1": "1-2", "c2": "3-4"}, {"c1": "1-2", "c2": "3-4"}),
    ("4", [], lasting("2", "2"), "3-6", {"c1": "3-4", "c2": "5-6"}, {"c1": "3-4", "c2": "5-6"}),
    ("4", [], lasting("2", "2"), "1-4", {"c1": "1-2"}, {"c1": "1-2", "c2": "3-4"}),
    ("4", [], lasting("2", "2"), "1-4", {}, {"c1": "1-2", "c2": "3-4"}),
    ("3", [], lasting("2", ""), "1-3", {"c1": "1-2"}, {"c1": "1-2", "c2": "3"}),
    ("2", [app("i1", "2")], lasting("2"), "1-2", {"i1": "1-2"}, {"i1": "1-2", "c1": "1-2"}),
    ("4", [side("s1", "2")], lasting("2"), "1-4", {"s1": "1-2"}, {"s1": "1-2", "c1": "3-4"}),
    (
        "6",
        [side("s1", "2"), side("s2", "2")],
        lasting("2"),
        "1-6",
        {"s1": "1-2"},
        {"s1": "1-2", "s2": "3-4", "c1": "5-6"},
    ),
    ("4", [], lasting("2", "2"), "1-4", {"c2": "2,4"}, {"c1": "1-2", "c2": "3-4"}),
    ("3", [side("s1")], lasting("2"), "1-3", {}, {"s1": "3", "c1": "1-2"}),
    (
        "4",
        [side("s1", "2"), app("i1")],
        lasting("2"),
        "1-4",
        {"s1": "1-2"},
        {"s1": "1-2", "i1": "3-4", "c1": "3-4"},
    ),
    (
        "4",
        [side("s1", "2"), app("i1")],
        lasting("2"),
        "1-4",
        {"s1": "1-2", "i1": "3"},
        {"s1": "1-2", "i1": "3", "c1": "3-4"},
    ),
    (
        "2",
        [app("i1", "2"), app("i2", "2")],
        lasting("2"),
        "1-2",
        {"i1": "1-2"},
        {"i1": "1-2", "i2": "1-2", "c1": "1-2"},
    ),
    ("2", [app("i1", "2")], lasting("2"), "1-2", {"c1": "2"}, {"i1": "1-2", "c1": "1-2"}),
]
"""Upstream's cases of a kubelet that was killed between two writes (policy_static_restore_test.go)."""


@pytest.mark.parametrize(("own", "init", "containers", "held", "known", "expected"), RESTORED)
def test_state_of_a_killed_kubelet_is_completed(own, init, containers, held, known, expected):
    static = policy(EIGHT, reserved="0", pod_scope=True)
    start = state(without(EIGHT, held), known)
    start.pods["p"] = parse(held)
    pod = make_pod("p", *containers, init=init, own=own)
    assert static.problem(start) == ""
    changed = [static.allocate(start, pod, each, ANY) for each in (*init, *containers)]
    assert {name: printed(cpus) for name, cpus in start.containers["p"].items()} == expected
    assert changed == [known != expected, *(False for _ in changed[1:])]
    assert (printed(start.pods["p"]), printed(start.shared)) == (held, without(EIGHT, held))


def test_cpus_of_a_container_outside_its_pods_set_are_free_again():
    static, start = policy(EIGHT, reserved="0", pod_scope=True), state("0,4-7", {"c1": "3"})
    start.pods["p"] = parse("1-2")
    pod = make_pod("p", *lasting("1", "1"), own="2")
    assert static.problem(start) == ""
    assert static.allocate(start, pod, pod.spec.containers[0], ANY)
    assert start.containers == {"p": {"c1": parse("1"), "c2": parse("2")}}
    assert (printed(start.shared), static.problem(start)) == ("0,3-7", "")


def test_cpus_too_few_for_the_pod_are_free_again_with_it():
    static, start = policy(EIGHT, reserved="0", pod_scope=True), state("0,3-7", {"c1": "1-2"})
    start.pods["p"] = parse("1-2")
    pod = make_pod("p", *lasting("2", "2"), own="4")
    with pytest.raises(AllocationError, match="not enough cpus"):
        static.allocate(start, pod, pod.spec.containers[0], ANY)
    start.remove_pod("p")
    assert start == state("0-7")


@pytest.mark.parametrize(("own", "expected"), [("1-3", []), ("5-6", [Hint(frozenset({1}), preferred=True)])])
def test_hints_before_the_containers_have_theirs_are_those_of_the_pod(own, expected):
    start = state(without(TWO_NODES, own))
    start.pods["p"] = parse(own)
    hints = policy(TWO_NODES, reserved="0", pod_scope=True).pod_hints(start, make_pod("p", *lasting("2"), own="2"))
    assert [hint for hint in hints["cpu"] if hint.preferred] == expected


def test_pods_cpus_in_the_shared_pool_are_refused():
    found = state("0-7")
    found.pods["p"] = parse("5-6")
    problem = policy(EIGHT, pod_scope=True).problem(found)
    assert problem == 'pod: p cpuset: "5-6" overlaps with default cpuset "0-7"'


def test_pod_without_a_shared_cpu_is_rejected():
    static, start = policy(DUAL_HT, reserved="0", pod_scope=True), state("0-11")
    pod = make_pod("p", app("a", "1"), app("b", "1"), app("s"), own="2")
    assert static.pod_hints(start, pod) == {"cpu": []}
    with pytest.raises(AllocationError) as caught:
        static.allocate(start, pod, pod.spec.containers[0], NODE_0)
    assert (caught.value.reason, caught.value.message) == ("EmptyPodSharedPoolError", SHARED)
    assert start == state("0-11")


def test_containers_that_exceed_their_pod_are_rejected():
    static, start = policy(DUAL_HT, reserved="0", pod_scope=True), state("0-11")
    pod = make_pod("p", app("a", "2"), app("b", "2"), own="3")
    with pytest.raises(AllocationError, match="not enough cpus"):
        static.allocate(start, pod, pod.spec.containers[0], NODE_0)
    assert start == state("0-11")


@pytest.mark.parametrize(
    "pod",
    [
        make_pod("p", app("a", "1"), own="2", own_limit="1"),
        make_pod("p", app("a", "1"), own="1500m"),
    ],
)
def test_pod_without_whole_guaranteed_cpus_has_none(pod):
    static, start = policy(DUAL_HT, reserved="0", pod_scope=True), state("0-11")
    assert not static.allocate(start, pod, pod.spec.containers[0], NODE_0)
    assert static.pod_hints(start, pod) == {}
    assert start == state("0-11")


def test_without_the_gate_pods_with_own_resources_have_no_cpus():
    static, start = policy(DUAL_HT, reserved="0"), state("0-11")
    pod = make_pod("p", app("a", "2"), own="2")
    assert not static.allocate(start, pod, pod.spec.containers[0], ANY)
    assert static.container_hints(start, pod, pod.spec.containers[0]) == static.pod_hints(start, pod) == {}


def test_hints_of_a_pod_with_cpus_are_those_of_its_set():
    static, start = policy(DUAL_HT, reserved="0", pod_scope=True), state("0-11")
    pod = make_pod("p", app("a", "1"), app("s"), own="2")
    static.allocate(start, pod, pod.spec.containers[0], NODE_0)
    both = Hint(frozenset({0, 1}), preferred=False)
    assert static.pod_hints(start, pod) == {"cpu": [NODE_0, both]}
    assert static.pod_hints(start, make_pod("p", app("a", "1"), app("s"), own="3")) == {"cpu": []}


@pytest.mark.parametrize(("own", "init", "containers", "valid"), POOLS)
def test_shared_pools_are_judged_as_upstream(own, init, containers, valid):
    pod = make_pod("p", *containers, init=init, own=own)
    if valid:
        Requests(pod_level=True).check_pool(pod)
    else:
        with pytest.raises(EmptyPoolError, match=r"^pod rejected"):
            Requests(pod_level=True).check_pool(pod)


@pytest.mark.parametrize(("init", "containers", "expected"), SUMS)
def test_cpus_of_a_pod_are_counted_as_upstream(init, containers, expected):
    before = [app(f"i{at}", each) if isinstance(each, str) else each for at, each in enumerate(init)]
    pod = make_pod("p", *guaranteed(*containers), init=before)
    assert Requests().of_pod(pod) == expected
