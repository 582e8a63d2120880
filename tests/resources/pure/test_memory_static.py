"""Upstream's tables of the policy Static (policy_static_test.go), and properties of all histories."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.resources.errors import PolicyError
from actors.resources.memory import static
from actors.resources.memory.model import AssignmentError, Node, State
from actors.resources.memory.requests import is_pinned, of_pod
from proto.v1 import Pod
from tests.resources.hints import hint, hints
from tests.resources.memory import (
    GI,
    HUGE,
    HUGE_2M,
    MI,
    all_containers,
    blocks,
    burstable,
    container,
    guaranteed,
    machine,
    node,
    pod,
    state,
)

SYSTEM = {number: {"memory": 512 * MI} for number in range(4)}
DIFFERENT = "the expected machine state is different from the real one"


def empty(*nodes: tuple[int, int]) -> State:
    return static.initial(machine(*nodes), SYSTEM)


def without_table(found: Node, name: str) -> Node:
    del found.tables[name]
    return found


def changed(found: Node, name: str, field: str, value: int) -> Node:
    setattr(found.tables[name], field, value)
    return found


def test_initial_state_is_upstreams() -> None:
    assert empty((3 * GI, GI)) == state([node(0, (1536, 1536), (GI, GI))])


def test_node_with_less_memory_than_reserved_is_refused() -> None:
    with pytest.raises(PolicyError, match="cannot reserve 536870912 bytes of memory on NUMA node 0, which has 1048576"):
        empty((1025, 1024))


ONE = (1536, 1536), (GI, GI)
LARGE = (9 * GI, 9 * GI), (5 * GI, 5 * GI)


@pytest.mark.parametrize(
    ("nodes", "known", "problem"),
    [
        ([(3 * GI, GI)], state([node(0, *ONE)]), None),
        ([(3 * GI, GI), (3 * GI, GI)], state([node(0, *ONE)]), DIFFERENT),
        ([(3 * GI, GI)], state([node(0, *ONE), node(1, *ONE)]), DIFFERENT),
        ([(3 * GI, GI)], state([without_table(node(0, *ONE), "memory")]), DIFFERENT),
        ([(3 * GI, GI)], state([without_table(node(0, *ONE), HUGE)]), DIFFERENT),
        ([(3 * GI, GI)], state([changed(node(0, *ONE), "memory", "total", 1536 * MI)]), DIFFERENT),
        ([(3 * GI, GI)], state([changed(node(0, *ONE), "memory", "system_reserved", GI)]), DIFFERENT),
        ([(3 * GI, GI)], state([changed(node(0, *ONE), "memory", "allocatable", GI)]), DIFFERENT),
        ([(3 * GI, GI)], state([node(0, *ONE, 1)], p=blocks("0", 512)), DIFFERENT),
        ([(4 * GI, 2 * GI)], state([node(0, *ONE)]), DIFFERENT),
        ([(4 * GI, 2 * GI)], state([changed(node(0, *ONE), HUGE, "system_reserved", GI * MI)]), DIFFERENT),
        (
            [(6 * GI, 4 * GI)],
            state([node(0, (1536, 1536), (4 * GI, GI), 2)], p=blocks("0", 0, GI)[:1], q=blocks("0", 0, GI)[:1]),
            DIFFERENT,
        ),
        (
            [(3 * GI, GI)],
            state([node(0, *ONE)], p=blocks("1", GI)),
            r"p, container: c\) .* the NUMA that does not exist",
        ),
        (
            [(3 * GI, GI)],
            state([node(0, *ONE, 2)], p=blocks("0", GI, GI, HUGE_2M)),
            r"p, container: c\) .* uses memory resource that does not exist",
        ),
        ([(3 * GI, GI)], state([node(0, *ONE, 1)], p=blocks("0", GI, GI)), DIFFERENT),
        ([(3 * GI, GI)], state([node(0, (1536, 512), (GI, 0), 2)], p=blocks("0", GI, GI)), None),
        ([(3 * GI, GI)], state([node(0, (1536, 512), (GI, 0), 2, (0, 1))], p=blocks("0", GI, GI)), DIFFERENT),
        (
            [(2176, GI), (2176, GI)],
            state(
                [node(0, (640, 0), (GI, 0), 4, (0, 1)), node(1, (640, 256), (GI, 0), 4, (0, 1))],
                p=blocks("01", 768, GI),
                q=blocks("01", 256, GI),
            ),
            None,
        ),
        (
            [(2176, GI), (2176, GI)],  # another order of releases spreads the memory otherwise
            state(
                [node(0, (640, 256), (GI, 0), 4, (1, 0)), node(1, (640, 0), (GI, 0), 4, (0, 1))],
                p=blocks("01", 768, GI),
                q=blocks("01", 256, GI),
            ),
            None,
        ),
        ([(3 * GI, GI)], state([node(0, *ONE, 2)], p=blocks("0", 0, 0)), None),
    ],
)
def test_state_must_fit_the_machine(nodes: list[tuple[int, int]], known: State, problem: str | None) -> None:
    before = deepcopy(known)
    if problem is None:
        static.check(known, empty(*nodes))
    else:
        with pytest.raises(PolicyError, match=problem):
            static.check(known, empty(*nodes))
    assert known == before


NO_MEMORY = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
UNEVEN = [
    node(0, (GI, 512), (GI, GI), 1),
    node(1, (512, 512), (GI, GI)),
    node(2, (512, 512), (GI, GI)),
]
FOUR_SMALL = [node(number, (512, 512), (GI, GI)) for number in range(4)]


@pytest.mark.parametrize(
    ("known", "affinity", "subject", "result"),
    [
        (
            state([node(0, *ONE)]),
            "*-",
            guaranteed("p"),
            state([node(0, (1536, 512), (GI, 0), 2)], p=blocks("0", GI, GI)),
        ),
        (
            state([node(0, *ONE)]),
            "*+",
            guaranteed("p"),
            state([node(0, (1536, 512), (GI, 0), 2)], p=blocks("0", GI, GI)),
        ),
        (
            state([node(0, *ONE)]),
            "0+",
            guaranteed("p"),
            state([node(0, (1536, 512), (GI, 0), 2)], p=blocks("0", GI, GI)),
        ),
        (
            state([node(0, *ONE)]),
            "0+",
            guaranteed("p", 512, None),
            state([node(0, (1536, GI), (GI, GI), 1)], p=blocks("0", 512)),
        ),
        (state([node(0, (1536, 512), (GI, 0), 2)], q=blocks("0", GI, GI)), "*-", guaranteed("p"), NO_MEMORY),
        (state(UNEVEN, q=blocks("0", 512)), "*+", guaranteed("p"), "failed to find the default preferred hint"),
        (
            state(UNEVEN, q=blocks("0", 512)),
            "*-",
            guaranteed("p"),
            state(
                [
                    UNEVEN[0],
                    node(1, (512, 0), (GI, 0), 2, (1, 2)),
                    node(2, (512, 0), (GI, GI), 2, (1, 2)),
                ],
                q=blocks("0", 512),
                p=blocks("12", GI, GI),
            ),
        ),
        (
            state(
                [
                    node(0, (512, 512), (GI, GI)),
                    node(1, (1536, 512), (GI, GI), 1, (1, 2)),
                    node(2, (1536, 512), (GI, GI), 1, (1, 2)),
                ]
            ),
            "0-",
            guaranteed("p"),
            "failed to find NUMA nodes to extend the current topology hint",
        ),
        (state(UNEVEN, q=blocks("0", 512)), "1+", guaranteed("p"), "failed to find the extended preferred hint"),
        (
            state(FOUR_SMALL),
            "*+",
            guaranteed("p"),
            state(
                [
                    node(0, (512, 0), (GI, 0), 2, (0, 1)),
                    node(1, (512, 0), (GI, GI), 2, (0, 1)),
                    *FOUR_SMALL[2:],
                ],
                p=blocks("01", GI, GI),
            ),
        ),
        (
            state(FOUR_SMALL),
            "2+",  # the rest of an intersection: extended to the fewest nodes with it
            guaranteed("p"),
            state(
                [
                    node(0, (512, 0), (GI, 0), 2, (0, 2)),
                    FOUR_SMALL[1],
                    node(2, (512, 0), (GI, GI), 2, (0, 2)),
                    FOUR_SMALL[3],
                ],
                p=blocks("02", GI, GI),
            ),
        ),
        (
            state([node(0, (2048, GI), (GI, GI), 1), node(1, (2048, 2048), (GI, GI))], q=blocks("0", GI)),
            "01-",
            guaranteed("p", GI, None),
            "preferred hint violates NUMA node allocation",
        ),
        (
            state(
                [
                    node(0, (2048, GI), (GI, GI), 1, (0, 1)),
                    node(1, (2048, 2048), (GI, GI), 1, (0, 1)),
                    node(2, (2048, 2048), (GI, GI)),
                ],
                q=blocks("01", GI),
            ),
            "12-",
            guaranteed("p", GI, None),
            "preferred hint violates NUMA node allocation",
        ),
        (
            state([node(0, *ONE)]),
            "7+",
            guaranteed("p"),
            "failed to find NUMA nodes to extend the current topology hint",
        ),
        (
            state([node(0, *LARGE), node(1, *LARGE)]),
            "*-",
            guaranteed("p"),
            state([node(0, (9 * GI, 8 * GI), (5 * GI, 4 * GI), 2), node(1, *LARGE)], p=blocks("0", GI, GI)),
        ),
        (
            state([node(0, *LARGE), node(1, *LARGE)]),
            "*-",
            guaranteed("p", 12 * GI, 4 * GI),
            state(
                [
                    node(0, (9 * GI, 0), (5 * GI, GI), 2, (0, 1)),
                    node(1, (9 * GI, 6 * GI), (5 * GI, 5 * GI), 2, (0, 1)),
                ],
                p=blocks("01", 12 * GI, 4 * GI),
            ),
        ),
        (
            state([node(0, (9 * GI, 8 * GI), (5 * GI, 4 * GI), 2), node(1, *LARGE)], q=blocks("0", GI, GI)),
            "*-",
            guaranteed("p", 12 * GI, 4 * GI),
            NO_MEMORY,
        ),
        (state([node(0, *ONE)]), "*-", guaranteed("p", GI, 2 * GI), NO_MEMORY),
    ],
)
def test_allocation_is_upstreams(known: State, affinity: str, subject: Pod, result: State | str) -> None:
    found = deepcopy(known)
    [only] = subject.spec.containers
    if isinstance(result, str):
        with pytest.raises(AssignmentError, match=result):
            static.allocate(found, subject, only, hint(affinity))
        assert found == known
    else:
        assert static.allocate(found, subject, only, hint(affinity))
        assert found == result


def test_container_with_memory_keeps_it() -> None:
    known = state([node(0, (1536, 512), (GI, GI), 1)], p=blocks("0", GI))
    before = deepcopy(known)
    subject = guaranteed("p")
    assert not static.allocate(known, subject, subject.spec.containers[0], hint("*-"))
    assert known == before


@pytest.mark.parametrize(
    ("init", "apps", "left", "reserved"),
    [
        ((1, 2), (3, 4), (0, 0, 3, 4), 7),
        ((4, 3), (2, 1), (0, 1, 2, 1), 4),
        ((7, 4), (4, 3), (0, 0, 4, 3), 7),
        ((7, 4), (5, 2), (0, 0, 5, 2), 7),
        ((2,), (1,), (1, 1), 2),
        ((1,), (2,), (0, 2), 2),
        ((), (1, 2), (1, 2), 3),
    ],
)
def test_init_containers_memory_is_reused(
    init: tuple[int, ...], apps: tuple[int, ...], left: tuple[int, ...], reserved: int
) -> None:
    subject = pod(
        "p",
        *(container(f"c{number}", size * GI, size * GI) for number, size in enumerate(apps)),
        init=tuple(container(f"i{number}", size * GI, size * GI) for number, size in enumerate(init)),
    )
    found = empty((18 * GI, 8 * GI))
    for each in all_containers(subject):
        assert static.allocate(found, subject, each, hint("*-"))
        static.check(found, empty((18 * GI, 8 * GI)))
    assert [found.entries["p"][each.name] for each in all_containers(subject)] == [
        blocks("0", size * GI, size * GI) for size in left
    ]
    assert found.machine[0].tables["memory"].reserved == found.machine[0].tables[HUGE].reserved == reserved * GI * MI
    assert found.machine[0].assignments == 2 * len(all_containers(subject))


def test_memory_of_sidecars_between_init_containers_is_kept() -> None:
    def each(name: str, size: int, **more: Any) -> dict[str, Any]:
        return container(name, size * GI, size * GI, **more)

    always = {"restartPolicy": "Always"}
    init = (each("i", 1), each("s", 2, **always), each("j", 3), each("t", 4, **always))
    subject, found = pod("p", each("c", 1), init=init), state([node(0, (7 * GI, 7 * GI), (7 * GI, 7 * GI))])
    for one in all_containers(subject):
        assert static.allocate(found, subject, one, hint("*-"))
    held = {name: blocks("0", size * GI, size * GI) for name, size in zip("isjtc", (0, 2, 0, 4, 1), strict=True)}
    assert found == State({0: node(0, (7 * GI, 0), (7 * GI, 0), 10)}, {"p": held})
    before = deepcopy(found)
    for one in all_containers(subject):
        assert not static.allocate(found, subject, one, hint("*-"))
    assert found == before


def test_memory_of_a_sidecar_is_not_reused() -> None:
    sidecar = container("s", GI, restartPolicy="Always")
    subject = pod("p", container("c", GI), init=(container("i", GI), sidecar, container("j", GI)))
    found = empty((8 * GI, 0))
    for each in all_containers(subject):
        static.allocate(found, subject, each, hint("*-"))
    # The sidecar takes the memory of i, the app that of j.
    assert [found.entries["p"][name] for name in "iscj"] == [blocks("0", size) for size in (0, GI, GI, 0)]
    assert found.machine[0].tables["memory"].reserved == 2 * GI * MI


@pytest.mark.parametrize(
    ("known", "uid", "result"),
    [
        (state([node(0, *ONE)]), "p", state([node(0, *ONE)])),
        (state([node(0, (1536, 512), (GI, 0), 2)], p=blocks("0", GI, GI)), "p", state([node(0, *ONE)])),
        (
            state(
                [node(0, (512, 0), (GI, 0), 2, (0, 1)), node(1, (512, 0), (GI, GI), 2, (0, 1))], p=blocks("01", GI, GI)
            ),
            "p",
            state([node(0, (512, 512), (GI, GI)), node(1, (512, 512), (GI, GI))]),
        ),
        (
            state([node(0, (1536, 512), (GI, GI), 2)], p=blocks("0", 512), q=blocks("0", 512)),
            "p",
            state([node(0, (1536, GI), (GI, GI), 1)], q=blocks("0", 512)),
        ),
        (
            state([node(0, (1536, 1536), (GI, GI), 1)], p=blocks("0", 0)),
            "p",
            state([node(0, *ONE)]),
        ),
    ],
)
def test_removal_frees_memory_and_groups(known: State, uid: str, result: State) -> None:
    found = deepcopy(known)
    assert static.remove_pod(found, uid) == (uid in known.entries)
    assert found == result


ALONE = State(
    {0: node(0, (9 * GI, 7 * GI), (5 * GI, 3 * GI), 4), 1: node(1, *LARGE)},
    {"p": {"a": blocks("0", GI, GI), "b": blocks("0", GI, GI)}},
)
SPREAD = State(
    {
        0: node(0, (9 * GI, 0), (5 * GI, 3 * GI), 4, (0, 1)),
        1: node(1, (9 * GI, 5 * GI), (5 * GI, 5 * GI), 4, (0, 1)),
    },
    {"p": {"a": blocks("01", GI, GI), "b": blocks("01", 12 * GI, GI)}},
)


@pytest.mark.parametrize(
    ("known", "name", "nodes"),
    [
        (ALONE, "b", [node(0, (9 * GI, 8 * GI), (5 * GI, 4 * GI), 2), node(1, *LARGE)]),
        (
            SPREAD,
            "b",
            [
                node(0, (9 * GI, 9 * GI), (5 * GI, 4 * GI), 2, (0, 1)),
                node(1, (9 * GI, 8 * GI), (5 * GI, 5 * GI), 2, (0, 1)),
            ],
        ),
        (ALONE, "none", list(ALONE.machine.values())),
    ],
)
def test_removal_of_one_container_is_upstreams(known: State, name: str, nodes: list[Node]) -> None:
    found = deepcopy(known)
    static.remove(found, "p", name)
    held = {each: known.entries["p"][each] for each in "ab" if each != name}
    assert found == State(dict(enumerate(nodes)), {"p": held})


@pytest.mark.parametrize("known", [ALONE, SPREAD])
def test_removal_of_a_pod_that_is_gone_frees_all_its_containers(known: State) -> None:
    found = deepcopy(known)
    assert static.remove_pod(found, "p")
    assert found == state([node(0, *LARGE), node(1, *LARGE)])


TWO_IN_GROUP = [node(0, (1536, 0), (GI, 0), 2, (0, 1)), node(1, (1536, GI), (GI, 0), 2, (0, 1))]


@pytest.mark.parametrize(
    ("known", "subject", "expected"),
    [
        (state([node(0, (1536, 512), (GI, 0), 2)], p=blocks("0", GI, GI)), guaranteed("p"), "0+"),
        (
            state([*TWO_IN_GROUP, node(2, *ONE), node(3, *ONE)], q=blocks("01", 2 * GI, 2 * GI)),
            guaranteed("p"),
            "2+ 3+ 23-",
        ),
        (state([node(0, *ONE)], p=blocks("0", GI)), guaranteed("p"), None),
        (state([node(0, *ONE)], p=blocks("0", GI, GI, HUGE_2M)), guaranteed("p"), None),
        (state([node(0, *ONE)], p=blocks("0", 512, GI)), guaranteed("p"), None),
        (state([*TWO_IN_GROUP], q=blocks("01", 2 * GI)), guaranteed("p", GI, None), "01-"),
        (state([node(0, *ONE), node(1, *ONE)]), guaranteed("p"), "0+ 1+ 01-"),
        (state([node(0, *ONE), node(1, *ONE)]), guaranteed("p", 2 * GI), "01+"),
        (state([node(0, *ONE), node(1, *ONE)]), guaranteed("p", 4 * GI), None),
        (state(FOUR_SMALL[:3]), guaranteed("p"), "01+ 02+ 12+ 012-"),
        (state([node(0, (1536, 512), (GI, GI), 1), node(1, *ONE)], q=blocks("0", GI)), guaranteed("p"), "1+"),
        (
            state(
                [node(0, (1536, 0), (20, 0), 2, (0, 1)), node(1, (1536, GI), (20, 16), 2, (0, 1))],
                q=blocks("01", 2 * GI, 24),
            ),
            guaranteed("p", GI, 16),
            "01-",
        ),
        (ALONE, guaranteed("q"), "0+ 1+"),
        (state([node(0, *LARGE), node(1, *LARGE)]), guaranteed("q"), "0+ 1+ 01-"),
    ],
)
def test_container_hints_are_upstreams(known: State, subject: Pod, expected: str | None) -> None:
    [only] = subject.spec.containers
    wanted = {} if expected is None else dict.fromkeys(only.resources.requests.keys() - {"cpu"}, hints(expected))
    assert static.container_hints(known, subject, only) == wanted
    assert static.pod_hints(known, subject) == wanted


def test_pod_hints_count_all_containers() -> None:
    subject = pod("p", container("a", GI), container("b", GI))
    assert static.pod_hints(state([node(0, *ONE), node(1, *ONE)]), subject) == {"memory": hints("01+")}
    assert static.container_hints(state([node(0, *ONE), node(1, *ONE)]), subject, subject.spec.containers[0]) == {
        "memory": hints("0+ 1+ 01-")
    }


def test_hints_count_the_memory_of_init_containers() -> None:
    subject = pod("p", container("c", 1536), init=(container("i", 1536),))
    known = state([node(0, *ONE), node(1, (1536, 512), (GI, GI), 1)], q=blocks("1", GI))
    static.allocate(known, subject, subject.spec.init_containers[0], hint("0+"))
    assert static.container_hints(known, subject, subject.spec.containers[0]) == {"memory": hints("0+")}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (pod("p", container("a", 1), container("b", 2)), 3),
        (pod("p", container("a", 1), init=(container("i", 4), container("j", 2))), 4),
        (pod("p", container("a", 3), init=(container("i", 1), container("j", 2))), 3),
        (pod("p", container("a", 1), init=(container("s", 2, restartPolicy="Always"),)), 3),
        (pod("p", container("a", 1), init=(container("s", 2, restartPolicy="Always"), container("i", 3))), 5),
        (pod("p", container("a", 1), init=(container("i", 3), container("s", 2, restartPolicy="Always"))), 3),
        (pod("p", container("a", 2), init=(container("i", 3, 1024),)), 3),
    ],
)
def test_pod_requests_its_peak(subject: Pod, expected: int) -> None:
    assert of_pod(subject) == {"memory": expected * MI}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (guaranteed("p"), (True, True)),
        (burstable("p"), (False, False)),
        (pod("p", {"name": "c"}), (False, False)),
        (pod("p", container("c", 1), resources={"requests": {"cpu": "1", "memory": "1Mi"}}), (False, False)),
        (pod("p", container("c", 1), resources={"limits": {"memory": "1Mi"}}), (False, False)),
        (pod("p", container("c", 1), resources=container("c", 1)["resources"]), (False, True)),
    ],
)
def test_guaranteed_pods_are_pinned(subject: Pod, expected: tuple[bool, bool]) -> None:
    assert tuple(is_pinned(subject, pod_level=each) for each in (False, True)) == expected


@pytest.mark.parametrize(
    ("init", "apps", "expected"),
    [
        (((1, 1, False), (4, 4, False)), ((1, 1), (2, 2)), (4, 4)),
        (((1, 1, False), (3, 3, False)), ((2, 2), (3, 3)), (5, 5)),
        (((1, 1, False), (3, 4, False)), ((2, 1), (3, 2)), (5, 4)),
        (((2, 2, True), (4, 4, False)), ((1, 1), (2, 2)), (6, 6)),
        (((2, 2, True), (4, 4, False)), ((2, 2), (3, 3)), (7, 7)),
    ],
)
def test_pods_requests_are_upstreams(
    init: tuple[tuple[int, int, bool], ...], apps: tuple[tuple[int, int], ...], expected: tuple[int, int]
) -> None:
    before = tuple(
        container(f"i{at}", size, huge, **({"restartPolicy": "Always"} if sidecar else {}))
        for at, (size, huge, sidecar) in enumerate(init)
    )
    subject = pod("p", *(container(f"c{at}", *sizes) for at, sizes in enumerate(apps)), init=before)
    assert of_pod(subject) == dict(zip(("memory", HUGE), (each * MI for each in expected), strict=True))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.booleans(),
        st.lists(st.integers(1, 3000), max_size=2),
        st.lists(st.integers(1, 3000), min_size=1, max_size=2),
        st.sampled_from(["*-", "*+", "0+", "1-", "01-", "12+"]),
    ),
    max_size=12,
)


def totals_are_kept(found: State) -> bool:
    tables = [table for each in found.machine.values() for table in each.tables.values()]
    return all(table.reserved + table.free == table.allocatable and table.free >= 0 for table in tables)


def no_node_is_in_two_groups(found: State) -> bool:
    groups: dict[int, set[frozenset[int]]] = {}
    for _, _, block in found.each_block():
        for number in block.nodes:
            groups.setdefault(number, set()).add(frozenset(block.nodes))
    return all(len(of_node) == 1 for of_node in groups.values())


@given(STEPS)
def test_any_history_keeps_the_books(steps: list[tuple[int, bool, list[int], list[int], str]]) -> None:
    nodes = ((2560, 0), (2560, 0), (4608, 0))
    found = empty(*nodes)
    for number, arrives, init, apps, affinity in steps:
        uid = str(number)
        if not arrives or uid in found.entries:
            static.remove_pod(found, uid)
            continue
        subject = pod(
            uid,
            *(container(f"c{index}", size) for index, size in enumerate(apps)),
            init=tuple(container(f"i{index}", size) for index, size in enumerate(init)),
        )
        try:
            for each in all_containers(subject):
                static.allocate(found, subject, each, hint(affinity))
        except AssignmentError:
            static.remove_pod(found, uid)
        static.check(found, empty(*nodes))
        assert totals_are_kept(found)
        assert all(table.reserved == 0 for n in found.machine.values() for table in n.tables.values()) or found.entries
    for uid in list(found.entries):
        static.remove_pod(found, uid)
    assert found == empty(*nodes)


@given(STEPS)
def test_groups_never_mix_without_given_nodes(steps: list[tuple[int, bool, list[int], list[int], str]]) -> None:
    found = empty((2560, 0), (2560, 0), (4608, 0))
    for number, arrives, _, apps, _ in steps:
        uid = str(number)
        if not arrives or uid in found.entries:
            static.remove_pod(found, uid)
            continue
        subject = pod(uid, container("c", apps[0]))
        try:
            static.allocate(found, subject, subject.spec.containers[0], hint("*-"))
        except AssignmentError:
            assert static.container_hints(found, subject, subject.spec.containers[0]) == {}
        assert no_node_is_in_two_groups(found)
