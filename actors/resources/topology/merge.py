"""Merges the providers' hints to the best one. Pure.

Source: HintMerger of pkg/kubelet/cm/topologymanager and KEP-693. Upstream compares all permutations that take one
hint of each resource. The comparison is a total order, so the best permutation does not depend on their order.
Permutations with equal nodes and preference are merged early here: 8 NUMA nodes have at most 512 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from actors.resources.model.hints import ANY, Hint, Hints

Nodes = frozenset[int]
Distances = Mapping[int, Mapping[int, int]]
"""The kernel's distance (ACPI SLIT) from one NUMA node to another, by their IDs."""

UNSERVABLE = Hint(None, preferred=False)
"""Stands for a resource that no set of nodes can serve."""


def filter_hints(providers: Iterable[Hints]) -> list[Sequence[Hint]]:
    """Return one list of hints per resource. A provider without resources takes any node."""
    lists: list[Sequence[Hint]] = []
    for hints in providers:
        if not hints:
            lists.append((ANY,))
        for of_resource in hints.values():
            lists.append((ANY,) if of_resource is None else of_resource or (UNSERVABLE,))
    return lists


def merge(lists: Sequence[Sequence[Hint]], numa_nodes: Collection[int], distances: Distances | None = None) -> Hint:
    """Return the best intersection of one hint of each list. Without one: all nodes, not preferred.

    `distances`: among sets of one size, the closest nodes win (prefer-closest-numa-nodes), else the lower IDs.
    """
    everything = frozenset(numa_nodes)
    candidates = [hint for hint in _intersections(lists, everything) if hint.nodes]
    return min(candidates, key=order(widest_minimum(lists), distances), default=Hint(everything, preferred=False))


def widest_minimum(lists: Iterable[Iterable[Hint]]) -> int:
    """Return how many nodes the resource needs that needs most. 0: no resource names nodes."""
    return max((min((len(h.nodes) for h in hints if h.nodes is not None), default=0) for hints in lists), default=0)


def narrowness(nodes: Nodes) -> tuple[int, int]:
    """Sort key of a set of nodes: fewer nodes first, then lower IDs (IsNarrowerThan of upstream's bitmask)."""
    return len(nodes), sum(1 << node for node in nodes)


def _intersections(lists: Iterable[Sequence[Hint]], everything: Nodes) -> Iterable[Hint]:
    # A state is the intersection, and for a preferred one the nodes that all its hints have named so far.
    states: set[tuple[Nodes, bool, Nodes | None]] = {(everything, True, None)}
    for hints in lists:
        states = {_joined(state, hint) for state in states for hint in frozenset(hints)}
    return {Hint(nodes, preferred) for nodes, preferred, _ in states}


def _joined(state: tuple[Nodes, bool, Nodes | None], hint: Hint) -> tuple[Nodes, bool, Nodes | None]:
    nodes, preferred, named = state
    preferred = preferred and hint.preferred
    if hint.nodes is not None:
        nodes &= hint.nodes
        preferred = preferred and named in (None, hint.nodes)
        named = hint.nodes
    return nodes, preferred, named if preferred else None


def order(needed: int, distances: Distances | None) -> Callable[[Hint], tuple[int, ...]]:
    """Return the sort key of merged hints, best first. `needed`: see `widest_minimum`."""

    def key(hint: Hint) -> tuple[int, ...]:
        nodes = hint.nodes or frozenset()
        size, bits = narrowness(nodes)
        far = 0 if distances is None else sum(distances[a][b] for a in nodes for b in nodes)
        if hint.preferred:
            return 0, size, far, bits
        # A hint that is not preferred should have the nodes of the resource that needs most: up to them more is better.
        return (1, -size, far, bits) if size <= needed else (2, size, far, bits)

    return key
