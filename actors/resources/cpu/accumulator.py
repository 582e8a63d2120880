"""Takes CPUs along the topology, for one request: whole nodes, sockets, caches and cores first, then threads.

The orders are those of cpuAccumulator (pkg/kubelet/cm/cpumanager/cpu_assignment.go). Units with the fewest free CPUs
come first, so that a small request leaves large units whole; then lower IDs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from actors.resources.machine.cpusets import Cpus
from actors.resources.machine.topology import Topology

Level = Literal["socket", "node", "cache", "core"]


class Accumulator:
    """The free CPUs, those taken so far, and how many are still needed."""

    def __init__(self, topology: Topology, available: Cpus, count: int, *, spread: bool = False) -> None:
        """`spread`: take single threads in the order of their numbers, and no whole cores first."""
        self.needed = count
        self.taken: Cpus = frozenset()
        self._topology = topology
        self._free = available & topology.ids
        self._spread = spread
        nodes_above = len(topology.sockets) >= len(topology.nodes)
        self._levels: tuple[Level, Level] = ("node", "socket") if nodes_above else ("socket", "node")

    @property
    def satisfied(self) -> bool:
        """True when nothing more is needed."""
        return self.needed < 1

    @property
    def failed(self) -> bool:
        """True when the free CPUs cannot serve the rest."""
        return self.needed > len(self._free)

    def take(self, cpus: Cpus) -> None:
        """Move CPUs from the free ones to the taken ones."""
        self.taken |= cpus
        self._free -= cpus
        self.needed -= len(cpus)

    def take_whole_units(self) -> None:
        """Take free NUMA nodes and sockets as long as all their CPUs are needed, the larger kind of unit first."""
        for level in self._levels:
            self._take_whole(level)

    def take_caches(self) -> None:
        """Take free L3 caches as long as all their CPUs are needed, then the rest from one cache that has it all."""
        self._take_whole("cache")
        for cache in self.order("cache"):
            if self.satisfied:
                return
            self._take_part_of_cache(cache)

    def take_cores(self) -> None:
        """Take free cores as long as all their threads are needed."""
        self._take_whole("core")

    def take_threads(self) -> None:
        """Take single threads until the request is served."""
        for cpu in self.threads()[: max(0, self.needed)]:
            self.take(frozenset((cpu,)))

    def threads(self) -> list[int]:
        """The free CPUs in the order of taking."""
        level: Level = "socket" if self._spread else "core"
        inside = self._inside(level)
        return [cpu for unit in self.order(level) for cpu in sorted(inside[unit])]

    def whole(self, level: Level) -> list[int]:
        """The units without a used CPU, in the order of taking."""
        inside, total = self._inside(level), self._inside(level, self._topology.ids)
        return [unit for unit in self.order(level) if len(inside[unit]) == len(total[unit])]

    def free_in(self, level: Level, units: Iterable[int]) -> Cpus:
        """The free CPUs of these units."""
        inside = self._inside(level)
        return frozenset(cpu for unit in units for cpu in inside.get(unit, ()))

    def order(self, level: Level) -> Sequence[int]:
        """The units with free CPUs in the order of taking: by the order of the units above them, then by size."""
        first, second = self._levels
        above: dict[Level, Level] = {second: first, "core": second, "cache": "node"}
        if level == first:
            return self._by_size(level, self._free)
        outside = self._inside(above[level])
        found = [unit for outer in self.order(above[level]) for unit in self._by_size(level, outside[outer])]
        return list(dict.fromkeys(found))

    def _take_whole(self, level: Level) -> None:
        inside = self._inside(level)
        for unit in self.whole(level):
            if 0 < len(inside[unit]) <= self.needed and inside[unit] <= self._free:
                self.take(inside[unit])

    def _take_part_of_cache(self, cache: int) -> None:
        """Take what is needed from this cache, or nothing. With an odd number, one thread of the last core stays."""
        threads = self._topology.cpus_per_core
        cores = sorted({self._topology.cpus[cpu].core for cpu in self._inside("cache")[cache]})
        wanted = sorted(self.free_in("core", cores[: -(-self.needed // threads)]))
        if self.needed % 2 and threads > 1 and len(wanted) > self.needed:
            wanted.pop()
        if len(wanted) == self.needed:
            self.take(frozenset(wanted))

    def _by_size(self, level: Level, cpus: Cpus) -> list[int]:
        """The units of these free CPUs: those with the fewest free CPUs first."""
        inside = self._inside(level)
        units = {getattr(self._topology.cpus[cpu], level) for cpu in cpus}
        return sorted(units, key=lambda unit: (len(inside[unit]), unit))

    def _inside(self, level: Level, cpus: Cpus | None = None) -> dict[int, Cpus]:
        """The free CPUs (or `cpus`) of each unit."""
        found: defaultdict[int, set[int]] = defaultdict(set)
        for cpu in self._free if cpus is None else cpus:
            found[getattr(self._topology.cpus[cpu], level)].add(cpu)
        return {unit: frozenset(members) for unit, members in found.items()}
