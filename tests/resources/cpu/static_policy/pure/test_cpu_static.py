"""Upstream's cases of the static policy: start, allocation and release (policy_static_test.go)."""

import pytest

from actors.resources.cpu.state import State
from actors.resources.machine.cpusets import parse, printed
from actors.resources.model.hints import ANY, Hint
from actors.resources.model.provider import AllocationError
from tests.resources.cpu.machines import DUAL_HT, DUAL_NO_HT, FOUR_WAY_HT, MULTI_NUMA_HT, SINGLE_HT
from tests.resources.cpu.pods import container, make_pod, simple
from tests.resources.cpu.static_policy.static_cases import OTHER, policy, state, without

FULL, STRICT, BY_SOCKET = "full-pcpus-only", "strict-cpu-reservation", "align-by-socket"

SOCKET_0 = printed(FOUR_WAY_HT.in_sockets([0]))
SOCKET_1 = printed(FOUR_WAY_HT.in_sockets([1]))
SOME = "1,25,13,38,2,9,11,35,23,48,12,51,53,173,113,233,54,61"
SOME_MORE = "10,34,22,47,53,173,61,181,108,228,115,235"
PARTIAL = "10,11,53,37,55,67,52"

STARTS = [
    ([], 0, "", {"0": "0"}, "1-11", ""),
    ([], 2, "", {}, "0-1", 'not all reserved cpus: "0,6" are present in defaultCpuSet: "0-1"'),
    ([STRICT], 2, "", {}, "0-1", 'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-1"'),
    ([], 0, "", {"0": "0-2"}, "2-11", 'pod: p, container: 0 cpuset: "0-2" overlaps with default cpuset "2-11"'),
    ([STRICT], 0, "", {"0": "0-2"}, "2-11", 'pod: p, container: 0 cpuset: "0-2" overlaps with default cpuset "2-11"'),
    (
        [],
        0,
        "",
        {"0": "0-2", "1": "3-4"},
        "5-12",
        'current set of available CPUs "0-11" doesn\'t match with CPUs in state "0-12"',
    ),
    (
        [],
        0,
        "",
        {"0": "0-2", "1": "3-4"},
        "5-10",
        'current set of available CPUs "0-11" doesn\'t match with CPUs in state "0-10"',
    ),
    ([], 0, "0-1", {}, "2-5", 'not all reserved cpus: "0-1" are present in defaultCpuSet: "2-5"'),
    ([STRICT], 0, "0-1", {}, "0-5", 'some of strictly reserved cpus: "0-1" are present in defaultCpuSet: "0-5"'),
    ([STRICT], 0, "0-1", {"c": "2-3"}, "4-11", ""),
    ([], 0, "", {"c": "0-11"}, "", "default cpuset cannot be empty"),
    ([STRICT], 0, "0-1", {"c": "2-11"}, "", ""),
]

WHOLE_CORES_OR_NOT = [
    (SINGLE_HT, 1, "2-3,6-7", "0-1,4-5", "2", "1,5"),
    (DUAL_HT, 1, "2", "0-1,3-11", "6", "1,3,5,7,9,11"),
    (DUAL_HT, 1, "1,5", "0,2-4,6-11", "6", "2-4,8-10"),
    (DUAL_NO_HT, 1, "", "0-1,3-7", "4", "4-7"),
    (DUAL_NO_HT, 1, "4-5", "0-1,3,6-7", "4", "1,3,6-7"),
    (DUAL_HT, 1, "2", "0-1,3-11", "8", "1,3-5,7,9-11"),
    (FOUR_WAY_HT, 0, "3-7,11", without(FOUR_WAY_HT, "3-7,11"), "72", SOCKET_0),
    (FOUR_WAY_HT, 0, without(FOUR_WAY_HT, SOME), SOME, "12", "1,11,13,23,25,35,38,48,53,113,173,233"),
    (
        FOUR_WAY_HT,
        0,
        without(FOUR_WAY_HT, f"{SOCKET_1},{SOME_MORE}"),
        f"{SOCKET_1},{SOME_MORE}",
        "76",
        f"{SOCKET_1},10,22,34,47",
    ),
]

DEFAULT_OPTIONS = [
    (SINGLE_HT, 1, "", "", "0-7", "1", "4"),
    (FOUR_WAY_HT, 0, "", without(FOUR_WAY_HT, PARTIAL), "10-11,52-53,67", "5", "10-11,52-53,67"),
    (SINGLE_HT, 0, "0-1", "", "0-7", "1", "4"),
    (SINGLE_HT, 0, "0-1", "2-3,6-7", "0-1,4-5", "2", "4-5"),
]

TOO_FEW = [
    (SINGLE_HT, 1, "", "", "0-7", "8", "requested=8, available=7"),
    (DUAL_HT, 1, "", "1-3", "0,4-11", "10", "requested=10, available=8"),
    (SINGLE_HT, 1, "", "1-6", "0,7", "2", "requested=2, available=1"),
    (FOUR_WAY_HT, 0, "", without(FOUR_WAY_HT, PARTIAL), PARTIAL, "76", "requested=76, available=7"),
    (SINGLE_HT, 0, "0", "", "0-7", "8", "requested=8, available=7"),
]

NOT_ALIGNED = [
    (SINGLE_HT, 1, "", "0-7", "1", "requested 1 cpus not multiple cpus per core = 2"),
    (FOUR_WAY_HT, 8, "", "0-287", "15", "requested 15 cpus not multiple cpus per core = 4"),
    (
        DUAL_HT,
        0,
        "1,6",
        "0,2-5,7-11",
        "10",
        "not enough free physical CPUs: available physical CPUs = 8, requested CPUs = 10, CPUs per core = 2",
    ),
    (
        SINGLE_HT,
        0,
        "0-3",
        "0-7",
        "4",
        "not enough free physical CPUs: available physical CPUs = 0, requested CPUs = 4, CPUs per core = 2",
    ),
]

WHOLE_CORES = [(DUAL_HT, 2, ""), (DUAL_HT, 0, "0,6")]

AFFINITIES = [
    (None, "2", "0,6"),
    ({0}, "2", "0,6"),
    ({1}, "2", "1,7"),
    ({0}, "8", "0-2,4,6-8,10"),
    ({1}, "8", "0-1,3,5-7,9,11"),
]

RELEASES = [
    ({"a": "1-3"}, "4-7", "a", "1-7"),
    ({"a": "1-3", "b": "4-7"}, "", "a", "1-3"),
    ({"a": "1,3,5", "b": "2,4"}, "6-7", "a", "1,3,5-7"),
    ({"a": "1,3,5"}, "2,4,6-7", "b", "2,4,6-7"),
    ({"a": "0-3", "b": "0-1"}, "4-7", "a", "2-7"),
]

SEQUENCES = [
    (["100m"], ["4"], [""], ["0-1,4-5"]),
    (["4"], ["4"], ["0-1,4-5"], ["0-1,4-5"]),
    (["6"], ["4"], ["0-2,4-6"], ["0-1,4-5"]),
    (["2"], ["4"], ["0,4"], ["0-1,4-5"]),
    (["2", "2"], ["2"], ["0,4", "0,4"], ["0,4"]),
    (["4", "4"], ["2"], ["0-1,4-5", "0-1,4-5"], ["0,4"]),
    (["2", "2"], ["4"], ["0,4", "0,4"], ["0-1,4-5"]),
    (["2", "4"], ["6"], ["0,4", "0-1,4-5"], ["0-2,4-6"]),
    (["2", "4"], ["2", "2"], ["0,4", "0-1,4-5"], ["0,4", "1,5"]),
]


def allocated(static, start, pod, affinity=ANY):
    """CPUs of the pod's first container afterwards. Checks that they are not in the shared pool."""
    first = pod.spec.containers[0]
    static.allocate(start, pod, first, affinity)
    cpus = start.of(pod.metadata.uid, first.name)
    assert cpus is None or not cpus & start.shared
    return None if cpus is None else printed(cpus)


@pytest.mark.parametrize(("options", "count", "reserved", "held", "shared", "problem"), STARTS)
def test_states_are_judged_as_upstream(options, count, reserved, held, shared, problem):
    static = policy(DUAL_HT, *options, count=count, reserved=reserved)
    assert static.problem(state(shared, held)) == problem


@pytest.mark.parametrize(("options", "expected"), [([], "0-11"), ([STRICT], "2-11")])
def test_first_start_shares_all_cpus_or_all_but_reserved(options, expected):
    static = policy(DUAL_HT, *options, reserved="0-1")
    assert static.initial() == State(parse(expected))
    assert printed(static.allocatable) == "2-11"


def test_cpu_of_two_pods_is_refused():
    found = State(parse("4-11"), {"a": {"c": parse("0-1")}, "b": {"c": parse("1-3")}})
    assert policy(DUAL_HT).problem(found) == "pods a and b both have CPU 1"


@pytest.mark.parametrize("options", [[], [FULL]])
@pytest.mark.parametrize(("topology", "count", "held", "shared", "asked", "expected"), WHOLE_CORES_OR_NOT)
def test_sets_are_upstreams_with_whole_cores_or_not(options, topology, count, held, shared, asked, expected):
    start = state(shared, {OTHER: held} if held else None)
    assert allocated(policy(topology, *options, count=count), start, simple("p", "c", asked)) == printed(
        parse(expected)
    )


@pytest.mark.parametrize(("topology", "count", "reserved", "held", "shared", "asked", "expected"), DEFAULT_OPTIONS)
def test_sets_are_upstreams_by_default(topology, count, reserved, held, shared, asked, expected):
    static = policy(topology, count=count, reserved=reserved)
    start = state(shared, {OTHER: held} if held else None)
    assert allocated(static, start, simple("p", "c", asked)) == expected


@pytest.mark.parametrize(("topology", "count", "reserved", "held", "shared", "asked", "message"), TOO_FEW)
def test_too_few_cpus_reject_the_pod(topology, count, reserved, held, shared, asked, message):
    static = policy(topology, count=count, reserved=reserved)
    start = state(shared, {OTHER: held} if held else None)
    with pytest.raises(AllocationError) as caught:
        allocated(static, start, simple("p", "c", asked))
    assert caught.value.reason == "UnexpectedAdmissionError"
    expected = f"Allocate failed due to not enough cpus available to satisfy request: {message}, which is unexpected"
    assert caught.value.message == expected
    assert start == state(shared, {OTHER: held} if held else None)


@pytest.mark.parametrize(("topology", "count", "reserved", "shared", "asked", "message"), NOT_ALIGNED)
def test_requests_that_are_no_whole_cores_are_rejected(topology, count, reserved, shared, asked, message):
    static = policy(topology, FULL, count=count, reserved=reserved)
    with pytest.raises(AllocationError) as caught:
        allocated(static, state(shared), simple("p", "c", asked))
    assert (caught.value.reason, caught.value.message) == ("SMTAlignmentError", f"SMT Alignment Error: {message}")


@pytest.mark.parametrize(("topology", "count", "reserved"), WHOLE_CORES)
def test_all_whole_cores_but_the_reserved_one_are_given(topology, count, reserved):
    static = policy(topology, FULL, count=count, reserved=reserved)
    assert allocated(static, state("1-5,7-11"), simple("p", "c", "10")) == "1-5,7-11"


def test_running_pod_of_a_full_node_keeps_its_cores():
    static = policy(DUAL_HT, FULL, count=2)
    start = state("0,6", {"c": "1-5,7-11"})
    assert allocated(static, start, simple("p", "c", "10")) == "1-5,7-11"


@pytest.mark.parametrize(
    ("request_", "limit"), [("1", "2"), ("977m", "977m"), ("", ""), ("0", "0"), ("1500m", "1500m")]
)
def test_other_containers_stay_in_the_shared_pool(request_, limit):
    start = state("0-7")
    assert allocated(policy(SINGLE_HT, count=1), start, simple("p", "c", request_, limit)) is None
    assert start == state("0-7")


def test_container_with_cpus_keeps_them():
    start = state("0-1,4-5", {"c": "2-3,6-7"})
    assert allocated(policy(SINGLE_HT, count=1), start, simple("p", "c", "4")) == "2-3,6-7"
    assert printed(start.shared) == "0-1,4-5"


@pytest.mark.parametrize(("options", "expected"), [([BY_SOCKET], "2,11"), ([], "2,21")])
def test_affinity_extends_to_the_socket_with_its_option(options, expected):
    static = policy(MULTI_NUMA_HT, *options, count=1)
    affinity = Hint(frozenset({0, 2}), preferred=True)
    assert allocated(static, state("2,11,21-22"), simple("p", "c", "2"), affinity) == expected


@pytest.mark.parametrize(("nodes", "asked", "expected"), AFFINITIES)
def test_cpus_of_the_affinity_come_first(nodes, asked, expected):
    affinity = Hint(None if nodes is None else frozenset(nodes), preferred=True)
    assert allocated(policy(DUAL_HT), state("0-11"), simple("p", "c", asked), affinity) == expected


@pytest.mark.parametrize(("held", "shared", "name", "expected"), RELEASES)
def test_released_cpus_return_unless_a_sibling_has_them(held, shared, name, expected):
    start = state(shared, held)
    start.remove_container("p", name)
    assert printed(start.shared) == expected
    assert start.of("p", name) is None


@pytest.mark.parametrize(("init", "apps", "init_sets", "app_sets"), SEQUENCES)
def test_init_containers_hand_on_cpus_as_upstream(init, apps, init_sets, app_sets):
    before = [container(f"i{at}", cpus) for at, cpus in enumerate(init)]
    pod = make_pod("p", *(container(f"a{at}", cpus) for at, cpus in enumerate(apps)), init=before)
    static, start = policy(SINGLE_HT), state("0-7")
    for each in (*pod.spec.init_containers, *pod.spec.containers):
        static.allocate(start, pod, each, ANY)
    found = [start.of("p", each.name) for each in (*pod.spec.init_containers, *pod.spec.containers)]
    assert [printed(cpus or ()) for cpus in found] == init_sets + app_sets
    assert start.shared == parse("0-7").difference(*filter(None, found))


def test_app_container_reuses_cpus_of_an_init_container():
    pod = make_pod("p", container("app", "2"), init=[container("init", "4")])
    static, start = policy(SINGLE_HT), state("0-7")
    for each in (*pod.spec.init_containers, *pod.spec.containers):
        static.allocate(start, pod, each, ANY)
    assert printed(start.shared) == "2-3,6-7"
    start.remove_container("p", "init")
    assert printed(start.shared) == "1-3,5-7"


def test_app_container_reuses_no_cpus_of_a_sidecar():
    pod = make_pod("p", container("app", "2"), init=[container("side", "4", sidecar=True)])
    static, start = policy(SINGLE_HT), state("0-7")
    for each in (*pod.spec.init_containers, *pod.spec.containers):
        static.allocate(start, pod, each, ANY)
    assert printed(start.shared) == "3,7"


def test_reuse_survives_a_pod_between_and_a_restart():
    pod = make_pod("p", container("app", "2"), init=[container("init", "4")])
    static, start = policy(SINGLE_HT), state("0-7")
    static.allocate(start, pod, pod.spec.init_containers[0], ANY)
    other = simple("q", "c", "2")
    policy(SINGLE_HT).allocate(start, other, other.spec.containers[0], ANY)
    policy(SINGLE_HT).allocate(start, pod, pod.spec.containers[0], ANY)
    assert start.of("p", "app") <= start.of("p", "init")


@pytest.mark.parametrize(
    ("topology", "options", "count", "expected"),
    [
        (SINGLE_HT, [], 2, "0,4"),
        (SINGLE_HT, [], 1, "0"),
        (DUAL_HT, [], 2, "0,6"),
        (DUAL_HT, ["distribute-cpus-across-numa"], 8, "0-3,6-9"),
        (DUAL_HT, ["distribute-cpus-across-cores"], 2, "0,2"),
        (FOUR_WAY_HT, [], 4, "0,109,169,229"),
    ],
)
def test_counted_reservation_takes_cpus_by_the_options(topology, options, count, expected):
    assert printed(policy(topology, *options, count=count).reserved) == expected
