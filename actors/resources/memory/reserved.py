"""Checks reservedMemory against the machine and against what the node keeps from pods. Pure.

Source: validateReservedMemory of pkg/kubelet/cm/memorymanager and
https://kubernetes.io/docs/tasks/administer-cluster/memory-manager/#reserved-memory-flag.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from actors.resources.errors import PolicyError
from actors.resources.memory.model import HUGE_PAGES, MEMORY
from proto.v1.scalars.quantity import value

Reserved = dict[int, dict[str, int]]
"""Bytes by NUMA node and resource."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """An item of reservedMemory."""

    node: int
    limits: Mapping[str, str]
    """Quantity by resource: memory, hugepages-SIZE."""


def reserved_by_node(reservations: Iterable[Reservation], kept: Mapping[str, int], nodes: Collection[int]) -> Reserved:
    """Return the system's memory on each node. `kept`: systemReserved, kubeReserved and evictionHard together.

    Raises PolicyError, QuantityError.
    """
    found: Reserved = {node: {} for node in nodes}
    for reservation in reservations:
        if reservation.node not in found:
            raise PolicyError(
                "the reserved memory configuration references a NUMA node "
                f"{reservation.node} that does not exist on this machine; there are {sorted(found)}"
            )
        for resource, quantity in reservation.limits.items():
            on_node = found[reservation.node]
            on_node[resource] = on_node.get(resource, 0) + value(quantity)
    _check_sums(found, kept)
    return found


def is_memory(resource: str) -> bool:
    """True for the resources of the memory manager."""
    return resource == MEMORY or resource.startswith(HUGE_PAGES)


def _check_sums(found: Reserved, kept: Mapping[str, int]) -> None:
    named = {resource for on_node in found.values() for resource in on_node}
    for resource in sorted(named | {resource for resource in kept if is_memory(resource)}):
        total, needed = sum(on_node.get(resource, 0) for on_node in found.values()), kept.get(resource, 0)
        if total != needed:
            raise PolicyError(
                f'the total amount "{total}" of type "{resource}" is not equal to the value "{needed}" determined by '
                "Node Allocatable feature; set reservedMemory so that it is the sum of systemReserved, kubeReserved "
                "and evictionHard in bytes"
            )
    if not any(on_node.get(MEMORY, 0) for on_node in found.values()):
        raise PolicyError("[memorymanager] you should specify the system reserved memory; set reservedMemory")
