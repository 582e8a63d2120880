"""Sets the gauges of the CPU manager, and makes every counter visible from the start, as in the kubelet."""

from __future__ import annotations

from actors._metrics import kubelet as metrics
from actors.resources.assembly import Managers
from actors.resources.topology import scope


def begin(managers: Managers) -> None:
    """Show counters that have counted nothing as 0."""
    for counter in (
        metrics.CPU_PINNINGS,
        metrics.CPU_PINNING_ERRORS,
        metrics.MEMORY_PINNINGS,
        metrics.MEMORY_PINNING_ERRORS,
        metrics.TOPOLOGY_ADMISSIONS,
        metrics.TOPOLOGY_ADMISSION_ERRORS,
    ):
        counter.inc(by=0)
    cpus = managers.cpus.series() if managers.cpus is not None else ()
    for counter, labels in (*cpus, *scope.series(managers.topology)):
        counter.inc(*labels, by=0)


def measure(managers: Managers) -> None:
    """Set the gauges."""
    cpus, nodes = managers.cpus, managers.machine.nodes
    allocatable = cpus.allocatable if cpus is not None else frozenset()
    shared = cpus.shared if cpus is not None else frozenset()
    exclusive = allocatable - shared
    metrics.CPU_SHARED_POOL.set(1000 * len(allocatable & shared))
    metrics.CPU_EXCLUSIVE.set(len(exclusive))
    by_node = ((node, exclusive & managers.machine.in_nodes({node})) for node in nodes)
    metrics.CPU_EXCLUSIVE_BY_NODE.replace(((str(node),), len(found)) for node, found in by_node)
