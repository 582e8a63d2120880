"""Topology hints of the static policy (generateCPUTopologyHints of pkg/kubelet/cm/cpumanager). Pure."""

from __future__ import annotations

from itertools import combinations

from actors.resources.machine.cpusets import Cpus
from actors.resources.machine.topology import Topology
from actors.resources.model.hints import Hint


def cpu_hints(
    topology: Topology, available: Cpus, reusable: Cpus, count: int, *, by_socket: bool = False
) -> list[Hint]:
    """Return a hint for each set of NUMA nodes that has `count` CPUs, smallest sets first.

    Reusable CPUs are taken first, so a set must have all their nodes. Preferred are the sets with the fewest nodes that
    could serve `count` on an empty machine. `by_socket`: those with the fewest sockets are preferred too.
    """
    fewest = len(topology.nodes)
    needed = {topology.cpus[cpu].node for cpu in reusable}
    free = {node: len(topology.in_nodes((node,)) & available) for node in topology.nodes}
    total = {node: len(topology.in_nodes((node,))) for node in topology.nodes}
    found: list[frozenset[int]] = []
    for size in range(1, len(topology.nodes) + 1):
        for nodes in combinations(topology.nodes, size):
            if size < fewest and sum(total[node] for node in nodes) >= count:
                fewest = size
            if needed <= set(nodes) and sum(free[node] for node in nodes) + len(reusable) >= count:
                found.append(frozenset(nodes))
    return [
        Hint(nodes, preferred=len(nodes) == fewest or (by_socket and _fewest_sockets(topology, nodes, fewest)))
        for nodes in found
    ]


def _fewest_sockets(topology: Topology, nodes: frozenset[int], fewest: int) -> bool:
    per_socket = len(topology.nodes) // max(1, len(topology.sockets))
    return per_socket > 0 and len(topology.sockets_of(nodes)) == -(-fewest // per_socket)
