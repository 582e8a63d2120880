"""Upstream's tables of the topology manager's policies (policy_test.go), and properties of the merge."""

from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.resources.model.hints import Hint, Hints
from actors.resources.topology.merge import filter_hints, merge, narrowness, order, widest_minimum
from actors.resources.topology.policy import Policy, Settings, TopologyError, decide
from tests.resources.hints import hint, hints, provider

FOUR = {
    0: {0: 10, 1: 11, 2: 12, 3: 12},
    1: {0: 11, 1: 10, 2: 12, 3: 12},
    2: {0: 12, 1: 12, 2: 10, 3: 11},
    3: {0: 12, 1: 12, 2: 11, 3: 10},
}
EIGHT_ROWS = """
10 11 12 12 30 30 30 30
11 10 12 12 30 30 30 30
12 12 10 11 30 30 30 30
12 12 11 10 30 30 30 30
30 30 30 30 10 11 12 12
30 30 30 30 11 10 12 12
30 30 30 30 12 12 10 11
30 30 30 30 12 12 13 10
"""
EIGHT = {a: dict(enumerate(map(int, row.split()))) for a, row in enumerate(EIGHT_ROWS.strip().splitlines())}

Case = tuple[list[Hints], str]


def two(first: str, second: str, expected: str) -> Case:
    return [provider(r1=first), provider(r2=second)], expected


COMMON: list[Case] = [
    two("0+", "0+", "0+"),
    two("1+", "1+", "1+"),
    ([{}, provider(r="0+")], "0+"),
    ([{}, provider(r="1+")], "1+"),
    two("0+ 1+", "0+", "0+"),
    two("0+ 1+", "1+", "1+"),
    two("0+ 1+", "0+ 01-", "0+"),
    two("1+ 01-", "0+ 1+ 01-", "1+"),
    ([provider(r1="1+ 01-", r2="0+ 1+ 01-")], "1+"),
]
"""For every policy but none."""

MERGED: list[Case] = [
    two("01+ 02+", "01+ 02+", "01+"),
    ([], "ALL+"),
    ([{}], "ALL+"),
    ([provider(r=None)], "ALL+"),
    ([provider(r="")], "ALL-"),
    ([provider(r="*+")], "ALL+"),
    ([provider(r="*-")], "ALL-"),
    two("0+", "1+", "ALL-"),
    two("0+", "0-", "0-"),
    two("1+", "1-", "1-"),
    two("0+", "01+", "0-"),
    two("1+", "01+", "1-"),
    two("0+ 1+", "01-", "0-"),
    two("0123- 01-", "01-", "01-"),
    two("0123- 01-", "03-", "03-"),
    two("0123- 01-", "12-", "12-"),
    two("0123- 01-", "23-", "23-"),
]
"""For best-effort and restricted, with and without distances."""

NARROWEST: list[Case] = [
    two("0123- 01-", "12- 23-", "12-"),
    two("0123- 01-", "123- 12- 13- 23-", "12-"),
    two("04+ 02+", "04+ 02+", "02+"),
    two("04+ 15+", "04+ 15+", "04+"),
]
CLOSEST: list[Case] = [
    two("04+ 02+", "04+ 02+", "02+"),
    two("4+ 02+", "4+ 02+", "4+"),
    two("0123- 01-", "12- 23-", "23-"),
    two("0123- 01-", "123- 12- 13- 23-", "23-"),
    two("04+ 45+", "04+ 45+", "45+"),
    two("01+ 67+", "01+ 67+", "01+"),
]
SINGLE: list[Case] = [
    ([], "*+"),
    ([{}], "*+"),
    ([provider(r=None)], "*+"),
    ([provider(r="")], "*-"),
    ([provider(r="*+")], "*+"),
    ([provider(r="*-")], "*-"),
    two("0+", "1+", "*-"),
    two("0+", "0-", "*-"),
    two("1+", "1-", "*-"),
    two("0+ 1+", "01-", "*-"),
    ([provider(r1="01+", r2="0+ 1+ 01-")], "*-"),
    ([provider(r1="0+ 1+ 01-"), {}], "0+"),
    two("01+", "01+", "*-"),
]


def settings(policy: Policy, nodes: int, closest: bool = False) -> Settings:
    options = {"prefer-closest-numa-nodes": "true"} if closest else {}
    return Settings(policy, "container", options, frozenset(range(nodes)), FOUR if nodes == 4 else EIGHT)


def expected_hint(text: str, nodes: int) -> Hint:
    return hint(text.replace("ALL", "".join(map(str, range(nodes)))))


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
@pytest.mark.parametrize(("nodes", "closest"), [(4, False), (4, True), (8, False), (8, True)])
@pytest.mark.parametrize(("providers", "expected"), COMMON + MERGED)
def test_merge_gives_upstreams_hint(
    policy: Policy, nodes: int, closest: bool, providers: list[Hints], expected: str
) -> None:
    got, admit = decide(providers, settings(policy, nodes, closest))
    assert got == expected_hint(expected, nodes)
    assert admit == (policy == "best-effort" or got.preferred)


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
@pytest.mark.parametrize(("providers", "expected"), NARROWEST)
def test_low_node_ids_win_without_distances(policy: Policy, providers: list[Hints], expected: str) -> None:
    assert decide(providers, settings(policy, 8))[0] == hint(expected)


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
@pytest.mark.parametrize(("providers", "expected"), CLOSEST)
def test_closest_nodes_win_with_the_option(policy: Policy, providers: list[Hints], expected: str) -> None:
    assert decide(providers, settings(policy, 8, closest=True))[0] == hint(expected)


@pytest.mark.parametrize("closest", [False, True])
@pytest.mark.parametrize(("providers", "expected"), COMMON + SINGLE)
def test_single_numa_node_gives_upstreams_hint(closest: bool, providers: list[Hints], expected: str) -> None:
    got, admit = decide(providers, settings("single-numa-node", 4, closest))
    assert (got, admit) == (hint(expected), got.preferred)


def test_single_numa_node_names_no_node_of_a_machine_with_one() -> None:
    assert decide([provider(r="0+")], settings("single-numa-node", 1)) == (hint("*+"), True)


@pytest.mark.parametrize(
    ("providers", "expected"),
    [
        ([], []),
        ([{}], ["*+"]),
        ([provider(r=None)], ["*+"]),
        ([provider(r="")], ["*-"]),
        ([provider(r="0+ 01-")], ["0+ 01-"]),
        ([provider(r="*-")], ["*-"]),
        ([provider(a="0+", b=None), {}, provider(c="")], ["0+", "*+", "*+", "*-"]),
    ],
)
def test_filter_gives_one_list_per_resource(providers: list[Hints], expected: list[str]) -> None:
    assert [list(found) for found in filter_hints(providers)] == [hints(text) for text in expected]


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([], 0),
        (["+"], 0),
        (["*+"], 0),
        (["0+"], 1),
        (["01+"], 2),
        (["01+ 012+"], 2),
        (["01+ 012+", "012+"], 3),
        (["01+ 012+", "012+ 0123+"], 3),
        (["*+ 01-", "0+"], 2),
    ],
)
def test_widest_minimum_is_the_neediest_resources(lists: list[str], expected: int) -> None:
    assert widest_minimum([hints(text) for text in lists]) == expected


@pytest.mark.parametrize(
    ("needed", "current", "candidate", "winner"),
    [
        (1, "0-", "0+", "0+"),
        (1, "0+", "0-", "0+"),
        (1, "01+", "0+", "0+"),
        (1, "0+", "01+", "0+"),
        (1, "12-", "01-", "01-"),
        (1, "01-", "12-", "01-"),
        (2, "01-", "0-", "01-"),
        (2, "12-", "01-", "01-"),
        (2, "01-", "12-", "01-"),
        (2, "0-", "012-", "0-"),
        (2, "0-", "01-", "01-"),
        (3, "0-", "01-", "01-"),
        (3, "0-", "12-", "12-"),
        (4, "01-", "123-", "123-"),
        (4, "123-", "01-", "123-"),
        (4, "012-", "123-", "012-"),
        (4, "123-", "012-", "012-"),
    ],
)
def test_comparison_of_two_hints_is_upstreams(needed: int, current: str, candidate: str, winner: str) -> None:
    assert min(hint(candidate), hint(current), key=order(needed, None)) == hint(winner)


@pytest.mark.parametrize(
    ("current", "candidate", "winner", "even"),
    [
        ("0+", "02+", "0+", False),
        ("01+", "02+", "01+", True),
        ("03+", "02+", "02+", True),
        ("03+", "01+", "01+", False),
        ("23+", "03+", "23+", False),
        ("12-", "23-", "23-", False),
    ],
)
def test_closest_set_of_one_size_is_upstreams(current: str, candidate: str, winner: str, even: bool) -> None:
    distances = {a: dict.fromkeys(range(4), 10) for a in range(4)} if even else FOUR
    assert min(hint(candidate), hint(current), key=order(2, distances)) == hint(winner)


@pytest.mark.parametrize(
    ("nodes", "than", "narrower"),
    [
        ("0", "01", True),
        ("0", "1", True),
        ("1", "0", False),
        ("01", "0", False),
        ("01", "02", True),
        ("12", "3", False),
    ],
)
def test_fewer_nodes_are_narrower_then_lower_ids(nodes: str, than: str, narrower: bool) -> None:
    assert (narrowness(frozenset(map(int, nodes))) < narrowness(frozenset(map(int, than)))) is narrower


@pytest.mark.parametrize(
    ("policy", "nodes", "options", "fits"),
    [
        ("none", 64, {}, True),
        ("best-effort", 8, {}, True),
        ("best-effort", 9, {}, False),
        ("restricted", 9, {"max-allowable-numa-nodes": "8"}, False),
        ("single-numa-node", 9, {"max-allowable-numa-nodes": "9"}, True),
        ("restricted", 4, {"prefer-closest-numa-nodes": "true"}, True),
        ("restricted", 5, {"prefer-closest-numa-nodes": "true"}, False),
        ("restricted", 5, {"prefer-closest-numa-nodes": "false"}, True),
        ("single-numa-node", 5, {"prefer-closest-numa-nodes": "true"}, True),
    ],
)
def test_settings_refuse_a_machine_they_do_not_fit(
    policy: Policy, nodes: int, options: dict[str, str], fits: bool
) -> None:
    refused = pytest.raises(TopologyError, match="topologyManagerPolicyOptions")
    refusal: AbstractContextManager[object] = nullcontext() if fits else refused
    with refusal:
        Settings(policy, "container", options, frozenset(range(nodes)), FOUR)


NODE_SETS = st.frozensets(st.integers(0, 3), max_size=4)
LISTS = st.lists(st.lists(st.builds(Hint, st.none() | NODE_SETS, st.booleans()), max_size=4), max_size=4)


def permuted(lists: list[list[Hint]], distances: bool) -> Hint:
    """The merge as upstream writes it: over all permutations."""
    best, key = Hint(frozenset(range(4)), preferred=False), order(widest_minimum(lists), FOUR if distances else None)
    found = []
    for permutation in product(*lists):
        named = [h.nodes for h in permutation if h.nodes is not None]
        nodes = reduce(frozenset.__and__, named, frozenset(range(4)))
        preferred = all(h.preferred for h in permutation) and len(set(named)) <= 1
        found += [Hint(nodes, preferred)] if nodes else []
    return min(found, key=key, default=best)


@given(LISTS, st.booleans())
def test_merge_equals_the_search_of_all_permutations(lists: list[list[Hint]], distances: bool) -> None:
    assert merge(lists, range(4), FOUR if distances else None) == permuted(lists, distances)


@given(LISTS, st.randoms())
def test_merge_does_not_depend_on_the_order(lists: list[list[Hint]], random: Random) -> None:
    shuffled = [random.sample(found, len(found)) for found in random.sample(lists, len(lists))]
    assert merge(shuffled, range(4)) == merge(lists, range(4))


@given(LISTS)
def test_policies_admit_what_they_promise(lists: list[list[Hint]]) -> None:
    providers: list[Hints] = [{"r": found} for found in lists]
    assert decide(providers, settings("best-effort", 4))[1]
    restricted, admit = decide(providers, settings("restricted", 4))
    assert admit == restricted.preferred
    single, admit = decide(providers, settings("single-numa-node", 4))
    assert not admit or single.nodes is None or len(single.nodes) == 1
