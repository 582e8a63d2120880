"""Chooses CPUs for a request: packed, or spread evenly over NUMA nodes (KEP-2902).

Results are those of takeByTopologyNUMAPacked and takeByTopologyNUMADistributed
(pkg/kubelet/cm/cpumanager/cpu_assignment.go), for the same CPUs free.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations

from actors.resources.cpu.accumulator import Accumulator
from actors.resources.machine.cpusets import Cpus
from actors.resources.machine.topology import Topology


class NoCpusError(Exception):
    """The free CPUs do not suffice. The message is the kubelet's."""


def take_packed(
    topology: Topology, available: Cpus, count: int, *, spread: bool = False, by_cache: bool = False
) -> Cpus:
    """Choose `count` CPUs on as few nodes, sockets and cores as possible. Raises NoCpusError.

    `spread`: distribute-cpus-across-cores. `by_cache`: prefer-align-cpus-by-uncorecache.
    """
    chosen = _accumulator(topology, available, count, spread=spread)
    chosen.take_whole_units()
    if by_cache:
        chosen.take_caches()
    if not spread:
        chosen.take_cores()
    chosen.take_threads()
    return chosen.taken


def take_distributed(topology: Topology, available: Cpus, count: int, group: int = 1, *, spread: bool = False) -> Cpus:
    """Choose `count` CPUs on as few NUMA nodes as possible, as many from each of them. Raises NoCpusError.

    CPUs come in groups of `group`, the threads of a core. CPUs that remain go to the nodes where they leave the same
    number of free CPUs on each node. Packs a request that cannot be spread.
    """
    if count % group == 0:
        chosen = _accumulator(topology, available, count, spread=spread)
        if chosen.satisfied:
            return chosen.taken
        split = _split(topology, chosen, count, group)
        if split is not None:
            return _taken(topology, chosen, split, group, spread=spread)
    return take_packed(topology, available, count, spread=spread)


@dataclass(frozen=True, slots=True)
class _Split:
    """The number of CPUs from each node."""

    nodes: tuple[int, ...]
    share: int
    """CPUs from each of `nodes`."""
    rest: int
    """CPUs beyond that, in groups."""
    rest_nodes: tuple[int, ...]
    imbalance: float
    """Standard deviation of the CPUs that stay free on the nodes."""


def _accumulator(topology: Topology, available: Cpus, count: int, *, spread: bool) -> Accumulator:
    chosen = Accumulator(topology, available, count, spread=spread)
    if chosen.failed:
        raise NoCpusError(
            f"not enough cpus available to satisfy request: requested={count}, available={len(available)}"
        )
    return chosen


def _split(topology: Topology, chosen: Accumulator, count: int, group: int) -> _Split | None:
    """The best split over the fewest nodes that allow one; None when there is none."""
    nodes = chosen.order("node")
    free = {node: len(chosen.free_in("node", (node,))) for node in nodes}
    groups, groups_needed = -(-len(topology.ids) // group), -(-count // group)
    fewest = -(-groups_needed // -(-groups // len(topology.nodes)))
    for number in range(fewest, min(groups_needed, len(nodes)) + 1):
        best = None
        for some in combinations(nodes, number):
            split = _even(free, some, count, group)
            if split is not None and (best is None or split.imbalance < best.imbalance):
                best = split
            if best is not None and best.imbalance == 0:
                break
        if best is not None:
            return best
    return None


def _even(free: dict[int, int], nodes: tuple[int, ...], count: int, group: int) -> _Split | None:
    """An even split over these nodes; None when they cannot give that."""
    if sum(free[node] // group for node in nodes) * group < count:
        return None
    share = count // len(nodes) // group * group
    if any(free[node] < share for node in nodes):
        return None
    after = {node: number - share if node in nodes else number for node, number in free.items()}
    rest = count - share * len(nodes)
    if rest == 0:
        return _Split(nodes, share, 0, (), _deviation(after.values()))
    able = [node for node in nodes if after[node] >= group]
    best = None
    for number in range(len(able), 0, -1):
        for some in combinations(able, number):
            if sum(after[node] // group for node in some) * group < rest:
                continue
            imbalance = _deviation(_without_rest(after, some, rest, group).values())
            if best is None or imbalance < best.imbalance:
                best = _Split(nodes, share, rest, some, imbalance)
    return best


def _without_rest(free: dict[int, int], nodes: Sequence[int], rest: int, group: int) -> dict[int, int]:
    """The free CPUs after `rest` CPUs are taken from `nodes` in turn, a group each."""
    after = dict(free)
    while rest > 0:
        for node in nodes:
            if rest > 0 and after[node] >= group:
                after[node] -= group
                rest -= group
    return after


def _taken(topology: Topology, chosen: Accumulator, split: _Split, group: int, *, spread: bool) -> Cpus:
    for node in split.nodes:
        chosen.take(take_packed(topology, chosen.free_in("node", (node,)), split.share, spread=spread))
    rest = split.rest
    while rest > 0:
        for node in split.rest_nodes:
            free = chosen.free_in("node", (node,))
            if rest > 0 and len(free) >= group:
                chosen.take(take_packed(topology, free, group, spread=spread))
                rest -= group
    return chosen.taken


def _deviation(values: Collection[int]) -> float:
    """The standard deviation, rounded to thousandths as in the kubelet, which compares these values."""
    mean = _thousandths(sum(values) / len(values))
    return _thousandths(math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)))


def _thousandths(number: float) -> float:
    """Rounds a half up, as Go does."""
    return math.floor(number * 1000 + 0.5) / 1000
