"""The policy Static of the memory manager. Pure: all functions read or change a State.

Source: pkg/kubelet/cm/memorymanager/policy_static.go and KEP-1769. A NUMA node serves containers of its own, or those
of one group of nodes, never both. Containers reuse the memory of the pod's finished init containers on the same nodes.
The block of an init container then shrinks by the reused bytes. So the blocks always sum up to the reserved memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from actors._host.restart import is_sidecar
from actors.resources.errors import PolicyError
from actors.resources.machine.memory import Memory
from actors.resources.memory import requests
from actors.resources.memory.model import MEMORY, AssignmentError, Block, Node, State, Table
from actors.resources.memory.requests import Requests
from actors.resources.memory.reserved import Reserved
from actors.resources.model.hints import Hint, Hints
from actors.resources.topology.merge import narrowness
from proto.v1 import Container, Pod


def initial(machine: Memory, reserved: Reserved) -> State:
    """The state of a machine without assignments. Raises PolicyError when a node has less than is reserved."""
    nodes: dict[int, Node] = {}
    for number, memory in sorted(machine.items()):
        kept = reserved.get(number, {})
        tables = {name: _table(number, name, size, 0, kept) for name, size in memory.huge_pages.items()}
        tables[MEMORY] = _table(number, MEMORY, memory.total, sum(memory.huge_pages.values()), kept)
        nodes[number] = Node(0, tables, [number])
    return State(nodes)


def check(state: State, empty: State) -> None:
    """Raise PolicyError for a state that does not fit the machine, whose state without assignments is `empty`."""
    expected = State({number: _copied(node) for number, node in empty.machine.items()})
    for uid, name, block in state.each_block():
        where = f"[memorymanager] (pod: {uid}, container: {name}) the memory assignment uses"
        for number in block.nodes:
            if number not in expected.machine:
                raise PolicyError(f"{where} the NUMA that does not exist")
            if block.resource not in expected.machine[number].tables:
                raise PolicyError(f"{where} memory resource that does not exist")
        expected.take(block, block.size)
    if not _are_equal(state, expected):
        raise PolicyError("[memorymanager] the expected machine state is different from the real one")


def container_hints(state: State, pod: Pod, container: Container) -> Hints:
    """See Provider. Raises QuantityError."""
    wanted = requests.of_container(pod, container)
    blocks = state.blocks(pod.metadata.uid, container.name)
    return possible_hints(state, pod, wanted) if blocks is None else assigned_hints(blocks, wanted)


def pod_hints(state: State, pod: Pod) -> Hints:
    """See Provider. Raises QuantityError."""
    wanted = requests.of_pod(pod)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        blocks = state.blocks(pod.metadata.uid, container.name)
        if blocks is not None:
            return assigned_hints(blocks, wanted)
    return possible_hints(state, pod, wanted)


def allocate(state: State, pod: Pod, container: Container, affinity: Hint) -> bool:
    """Assign the container's memory; False when it has it already, or requests none.

    Raises AssignmentError, QuantityError.
    """
    uid = pod.metadata.uid
    wanted = requests.of_container(pod, container)
    if not wanted or state.blocks(uid, container.name) is not None:
        return False
    nodes = sorted(chosen_nodes(state, pod, wanted, affinity))
    blocks = [Block(list(nodes), resource, size) for resource, size in wanted.items()]
    for block in blocks:
        state.take(block, block.size - _take_over(state, pod, container, block))
    state.entries.setdefault(uid, {})[container.name] = blocks
    return True


def holds(state: State, pod: Pod) -> bool:
    """Return True when no container lacks memory that it requests, or the pod has memory as a whole.

    Raises QuantityError.
    """
    uid, containers = pod.metadata.uid, (*pod.spec.init_containers, *pod.spec.containers)
    asking = (one for one in containers if requests.of_container(pod, one))
    return uid in state.pods or all(state.blocks(uid, one.name) is not None for one in asking)


def remove(state: State, uid: str, name: str) -> None:
    """Free a container's memory. That of a pod with memory of its own is free after its last container."""
    containers = state.entries.get(uid, {})
    blocks = containers.pop(name, [])
    if not containers:
        state.entries.pop(uid, None)
        blocks = state.pods.pop(uid, blocks)
    elif uid in state.pods:
        return
    for block in blocks:
        state.give_back(block)


def remove_pod(state: State, uid: str) -> bool:
    """Free the memory of all containers of a pod. False when it had none."""
    names = list(state.entries.get(uid, ()))
    for name in names:
        remove(state, uid, name)
    return bool(names)


def _table(number: int, resource: str, total: int, huge: int, reserved: dict[str, int]) -> Table:
    kept = reserved.get(resource, 0)
    allocatable = total - huge - kept
    if allocatable < 0:
        raise PolicyError(
            f"cannot reserve {kept} bytes of {resource} on NUMA node {number}, which has {total - huge}; "
            "set less in reservedMemory"
        )
    return Table(total, kept, allocatable, 0, allocatable)


def _copied(node: Node) -> Node:
    tables = {
        name: Table(t.total, t.system_reserved, t.allocatable, t.reserved, t.free) for name, t in node.tables.items()
    }
    return Node(node.assignments, tables, list(node.group))


def _are_equal(state: State, expected: State) -> bool:
    """Free and reserved memory may be spread over the nodes of a group in another order of assignments."""
    if state.machine.keys() != expected.machine.keys():
        return False
    for number, node in state.machine.items():
        other = expected.machine[number]
        if node.assignments != other.assignments or sorted(node.group) != sorted(other.group):
            return False
        if node.tables.keys() != other.tables.keys():
            return False
    return all(
        _fixed(node.tables[name]) == _fixed(expected.machine[number].tables[name])
        and _sums(state, node, name) == _sums(expected, node, name)
        for number, node in state.machine.items()
        for name in node.tables
    )


def _fixed(table: Table) -> tuple[int, int, int]:
    return table.total, table.system_reserved, table.allocatable


def _sums(state: State, node: Node, resource: str) -> tuple[int, int]:
    tables = [state.machine[number].tables.get(resource, Table()) for number in node.group]
    return sum(table.free for table in tables), sum(table.reserved for table in tables)


def assigned_hints(blocks: list[Block], wanted: Requests) -> Hints:
    """The hints of a container that has its memory; none when it has another amount than it requests."""
    if len(blocks) != len(wanted) or any(wanted.get(block.resource) != block.size for block in blocks):
        return {}
    return {block.resource: [Hint(frozenset(block.nodes), preferred=True)] for block in blocks}


def possible_hints(state: State, pod: Pod, wanted: Requests) -> Hints:
    """Each group of nodes that can serve the request now. Those of the smallest group that ever could are preferred."""
    fitting = [
        nodes
        for nodes in _groups(state)
        if all(state.allocatable(nodes, name) >= size for name, size in wanted.items())
    ]
    fewest = min(map(len, fitting), default=len(state.machine))
    usable = [
        Hint(nodes, len(nodes) == fewest)
        for nodes in fitting
        if not _mixes_groups(state, nodes)
        and all(state.free(nodes, name) + _reusable(state, pod, nodes, name) >= size for name, size in wanted.items())
    ]
    return dict.fromkeys(wanted, usable) if usable else {}


def _groups(state: State) -> Iterator[frozenset[int]]:
    numbers = sorted(state.machine)
    for size in range(1, len(numbers) + 1):
        yield from map(frozenset, combinations(numbers, size))


def _mixes_groups(state: State, nodes: frozenset[int]) -> bool:
    """True when containers use a node of `nodes` alone or in another group."""
    if len(nodes) == 1:
        return any(len(state.machine[number].group) > 1 for number in nodes)
    used = [state.machine[number] for number in nodes if state.machine[number].assignments > 0]
    return any(set(node.group) != nodes for node in used)


def chosen_nodes(state: State, pod: Pod, wanted: Requests, affinity: Hint) -> frozenset[int]:
    """The nodes for a container or a pod, as policy_static.go decides after the topology manager.

    Raises AssignmentError.
    """
    nodes, preferred = affinity.nodes, affinity.preferred
    if nodes is None:
        hints = possible_hints(state, pod, wanted)
        if not hints:
            raise AssignmentError(
                "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
            )
        # All resources have the same hints.
        nodes, preferred = _best(hints, frozenset(), preferred, "default")
    if not _suffices(state, nodes, wanted):
        # The topology manager intersects the hints of all providers: it may have left a part of ours.
        nodes, _ = _best(possible_hints(state, pod, wanted), nodes, preferred, "extended")
    if _mixes_groups(state, nodes):
        raise AssignmentError("[memorymanager] preferred hint violates NUMA node allocation")
    return nodes


def _suffices(state: State, nodes: frozenset[int], wanted: Requests) -> bool:
    """False for nodes with less free memory than is wanted, and for a single node of a group.

    Upstream takes that single node. The group then has two sizes, and a restart refuses the state file.
    """
    if not nodes <= state.machine.keys() or (len(nodes) == 1 and _mixes_groups(state, nodes)):
        return False
    return all(state.free(nodes, name) >= size for name, size in wanted.items())


def _best(hints: Hints, including: frozenset[int], preferred: bool, kind: str) -> tuple[frozenset[int], bool]:
    """The best hint with the nodes of `including`. `preferred`: another one is an error."""
    usable = [hint for hint in next(iter(hints.values()), None) or () if including <= (hint.nodes or frozenset())]
    if not usable:
        raise AssignmentError("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
    best = min(usable, key=lambda hint: (not hint.preferred, narrowness(hint.nodes or frozenset())))
    if preferred and not best.preferred:
        raise AssignmentError(f"[memorymanager] failed to find the {kind} preferred hint")
    return best.nodes or frozenset(), best.preferred


def _init_blocks(state: State, pod: Pod, nodes: frozenset[int], resource: str, before: str = "") -> Iterator[Block]:
    """Blocks on exactly these nodes of the pod's init containers that end, up to the container `before`."""
    for container in pod.spec.init_containers:
        if container.name == before:
            return
        for block in state.blocks(pod.metadata.uid, container.name) or ():
            if not is_sidecar(container) and block.resource == resource and set(block.nodes) == nodes:
                yield block


def _reusable(state: State, pod: Pod, nodes: frozenset[int], resource: str) -> int:
    return sum(block.size for block in _init_blocks(state, pod, nodes, resource))


def _take_over(state: State, pod: Pod, container: Container, block: Block) -> int:
    """Move bytes from the blocks of earlier init containers to `block`; how many."""
    left = block.size
    for earlier in _init_blocks(state, pod, frozenset(block.nodes), block.resource, container.name):
        moved = min(left, earlier.size)
        earlier.size -= moved
        left -= moved
    return block.size - left
