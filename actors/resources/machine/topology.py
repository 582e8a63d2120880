"""Values of a machine's CPU topology (pkg/kubelet/cm/cpumanager/topology)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from actors.resources.machine.cpusets import Cpus


@dataclass(frozen=True, slots=True)
class Cpu:
    """The place of one logical CPU."""

    core: int
    """Unique on the machine. As the kubelet numbers cores: the lowest CPU of the core."""
    socket: int
    node: int
    """NUMA node."""
    cache: int = 0
    """The L3 cache that some cores of the node share (uncore cache). The socket where all cores share it."""


@dataclass(frozen=True)
class Topology:
    """The CPUs that are online."""

    cpus: Mapping[int, Cpu]
    offline: Cpus = field(default=frozenset())
    """CPUs that the machine has and that are switched off."""

    @cached_property
    def ids(self) -> Cpus:
        """All CPUs online."""
        return frozenset(self.cpus)

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """IDs of the NUMA nodes with CPUs, ascending."""
        return tuple(sorted({cpu.node for cpu in self.cpus.values()}))

    @cached_property
    def sockets(self) -> tuple[int, ...]:
        """IDs of the sockets, ascending."""
        return tuple(sorted({cpu.socket for cpu in self.cpus.values()}))

    @cached_property
    def cpus_per_core(self) -> int:
        """Hyper-threads of a core; the mean, rounded down, where cores differ. At least 1."""
        cores = len({cpu.core for cpu in self.cpus.values()})
        return max(1, len(self.cpus) // cores) if cores else 1

    def in_nodes(self, nodes: Collection[int]) -> Cpus:
        """The CPUs of these NUMA nodes."""
        return frozenset(number for number, cpu in self.cpus.items() if cpu.node in nodes)

    def in_sockets(self, sockets: Collection[int]) -> Cpus:
        """The CPUs of these sockets."""
        return frozenset(number for number, cpu in self.cpus.items() if cpu.socket in sockets)

    def sockets_of(self, nodes: Collection[int]) -> frozenset[int]:
        """The sockets of these NUMA nodes."""
        return frozenset(cpu.socket for cpu in self.cpus.values() if cpu.node in nodes)

    def with_siblings(self, cpus: Collection[int]) -> Cpus:
        """These CPUs, and the other hyper-threads of their cores."""
        cores = {self.cpus[number].core for number in cpus}
        return frozenset(number for number, cpu in self.cpus.items() if cpu.core in cores)
