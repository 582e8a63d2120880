"""Memory of the NUMA nodes and its assignments to containers, as the file memory_manager_state holds them.

Source: pkg/kubelet/cm/memorymanager/state/state.go. Sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
NodeId = Annotated[int, msgspec.Meta(ge=0, le=2**16)]

MEMORY = "memory"
HUGE_PAGES = "hugepages-"


class AssignmentError(Exception):
    """A container's memory cannot be assigned; the message is the kubelet's."""


class Table(msgspec.Struct):
    """One kind of memory of a NUMA node."""

    total: Count = 0
    system_reserved: Count = msgspec.field(default=0, name="systemReserved")
    allocatable: Count = 0
    """Total less the system's part, and for `memory` less all huge pages."""
    reserved: Count = 0
    """Assigned to containers."""
    free: Count = 0


class Node(msgspec.Struct):
    """A NUMA node."""

    assignments: int = msgspec.field(default=0, name="numberOfAssignments")
    """Blocks that name this node."""
    tables: dict[str, Table] = msgspec.field(default_factory=dict, name="memoryMap")
    """By resource."""
    group: list[NodeId] = msgspec.field(default_factory=list, name="cells")
    """Nodes that containers use together with this one, itself included. A node is in one group at a time."""


class Block(msgspec.Struct):
    """Memory of a container on a group of nodes."""

    nodes: list[NodeId] = msgspec.field(default_factory=list, name="numaAffinity")
    resource: str = msgspec.field(default="", name="type")
    size: Count = 0


class State(msgspec.Struct):
    """The machine and all assignments."""

    machine: dict[NodeId, Node] = {}
    entries: dict[str, dict[str, list[Block]]] = {}
    """Blocks by pod UID and container name."""
    pods: dict[str, list[Block]] = {}
    """All blocks of pods with memory of their own. Their containers' blocks are parts of these, or the same."""

    def blocks(self, uid: str, name: str) -> list[Block] | None:
        """A container's blocks; None for a container without an assignment."""
        return self.entries.get(uid, {}).get(name)

    def each_block(self) -> Iterator[tuple[str, str, Block]]:
        """All reserved blocks with pod UID and container name. A pod with memory of its own has them without a name."""
        for uid, containers in self.entries.items():
            reserved = {"": self.pods[uid]} if uid in self.pods else containers
            for name, blocks in reserved.items():
                for block in blocks:
                    yield uid, name, block

    def free(self, nodes: frozenset[int], resource: str) -> int:
        """Free bytes of a resource on a group of nodes."""
        return sum(table.free for table in self._tables(nodes, resource))

    def allocatable(self, nodes: frozenset[int], resource: str) -> int:
        """Bytes of a resource that containers can have on a group of nodes."""
        return sum(table.allocatable for table in self._tables(nodes, resource))

    def take(self, block: Block, size: int) -> None:
        """Reserve `size` bytes for `block` on its nodes, lowest ID first. Size 0 only joins the nodes to a group."""
        for number in block.nodes:
            node = self.machine[number]
            node.assignments += 1
            node.group = list(block.nodes)
            table = node.tables.get(block.resource, Table())
            taken = min(size, table.free)
            table.reserved += taken
            table.free -= taken
            size -= taken

    def give_back(self, block: Block) -> None:
        """Undo `take` for a whole block. The last block of a node ends its group."""
        size = block.size
        for number in block.nodes:
            node = self.machine[number]
            node.assignments -= 1
            if node.assignments == 0:
                node.group = [number]
            table = node.tables.get(block.resource, Table())
            returned = min(size, table.reserved)
            table.reserved -= returned
            table.free += returned
            size -= returned

    def _tables(self, nodes: frozenset[int], resource: str) -> Iterator[Table]:
        return (table for number in nodes if (table := self.machine[number].tables.get(resource)) is not None)
