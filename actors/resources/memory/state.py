"""The content of the file memory_manager_state below --root-dir.

Name, format and checksum are the kubelet's (pkg/kubelet/cm/memorymanager/state). Kubernetes 1.36 writes version 1, and
with the gate PodLevelResourceManagers version 2, which has pods with memory of their own. So a node changes between the
kubelet and nodevisor without new assignments.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from actors._host.files.hashing import fnv1a_32
from actors.resources.memory.model import Block, Node, NodeId, State, Table
from actors.resources.state_file import StateFile, quoted
from proto.common import untrusted

_TYPES = ("MemoryManagerCheckpoint", "MemoryManagerCheckpointV1")
"""The struct's names in the checksums of kubelets until 1.35 and since 1.36, without the gate. All accept the first."""


class _PodEntry(msgspec.Struct):
    blocks: list[Block] = msgspec.field(default_factory=list, name="memoryBlocks")


class _File(msgspec.Struct, kw_only=True):
    policy: str = msgspec.field(default="", name="policyName")
    machine: dict[NodeId, Node] = msgspec.field(default_factory=dict, name="machineState")
    entries: dict[str, dict[str, list[Block]]] | msgspec.UnsetType = msgspec.UNSET
    pods: dict[str, _PodEntry] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="podEntries")
    checksum: int = 0


def state_file(directory: str, policy: str, *, pod_level: bool = False) -> StateFile[State]:
    """The file in `directory`. `pod_level`: write version 2 of the format (gate PodLevelResourceManagers)."""
    return StateFile(
        directory, "memory", lambda state: encode(state, policy, pod_level=pod_level), lambda data: decode(data, policy)
    )


def encode(state: State, policy: str, *, pod_level: bool = False) -> bytes:
    """The content of the file. `pod_level`: version 2, also without pods that have memory of their own."""
    file = _File(
        policy=policy,
        machine={number: state.machine[number] for number in sorted(state.machine, key=str)},
        entries={uid: dict(sorted(state.entries[uid].items())) for uid in sorted(state.entries)} or msgspec.UNSET,
        pods={uid: _PodEntry(state.pods[uid]) for uid in sorted(state.pods)} or msgspec.UNSET,
        checksum=_checksum(_TYPES[0], policy, state, pods=pod_level or bool(state.pods)),
    )
    return msgspec.json.encode(file)


def decode(content: bytes, policy: str) -> State:
    """The state in a file's content. Raises ValueError with the kubelet's reason. Checksum 0 counts as valid."""
    try:
        file = untrusted.decode_json(content, _File)
    except msgspec.DecodeError as error:
        raise ValueError(f"checkpoint is corrupted: {error}") from error
    state = State(file.machine, {} if isinstance(file.entries, msgspec.UnsetType) else file.entries)
    if not isinstance(file.pods, msgspec.UnsetType):
        state.pods = {uid: entry.blocks for uid, entry in file.pods.items()}
    versions = (True,) if state.pods else (False, True)
    known = (_checksum(name, file.policy, state, pods=each) for name in _TYPES for each in versions)
    if file.checksum and file.checksum not in known:
        raise ValueError("checkpoint is corrupted")
    if file.policy != policy:
        raise ValueError(
            f"[memorymanager] configured policy {quoted(policy)} differs from state checkpoint policy "
            f"{quoted(file.policy)}"
        )
    return state


def _checksum(name: str, policy: str, state: State, *, pods: bool) -> int:
    """FNV-1a 32 of the struct as Go's spew prints it (pkg/kubelet/checkpointmanager/checksum). `pods`: version 2."""
    machine = _map({number: f"<*>{_node(node)}" for number, node in state.machine.items()})
    entries = _map(
        {
            uid: _map({name: f"[{' '.join(map(_block, blocks))}]" for name, blocks in containers.items()})
            for uid, containers in state.entries.items()
        }
    )
    own = _map(
        {uid: f"{{MemoryBlocks:([]state.Block)[{' '.join(map(_block, each))}]}}" for uid, each in state.pods.items()}
    )
    printed = (
        f"(*state.{name}){{PolicyName:(string){policy} MachineState:(state.NUMANodeMap){machine} "
        f"Entries:(state.ContainerMemoryAssignments){entries} "
        f"{f'PodEntries:(state.PodMemoryAssignments){own} ' if pods else ''}Checksum:(checksum.Checksum)0}}"
    )
    return fnv1a_32(printed.encode("utf-8", "surrogatepass"))


def _node(node: Node) -> str:
    tables = _map({name: f"<*>{_table(table)}" for name, table in node.tables.items()})
    return (
        f"{{NumberOfAssignments:(int){node.assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){tables} Cells:([]int){_ints(node.group)}}}"
    )


def _table(table: Table) -> str:
    return (
        f"{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.system_reserved} "
        f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} Free:(uint64){table.free}}}"
    )


def _block(block: Block) -> str:
    nodes = _ints(block.nodes)
    return f"{{NUMAAffinity:([]int){nodes} Type:(v1.ResourceName){block.resource} Size:(uint64){block.size}}}"


def _ints(numbers: list[int]) -> str:
    return f"[{' '.join(map(str, numbers))}]"


def _map(values: Mapping[int, str] | Mapping[str, str]) -> str:
    # Go sorts strings by bytes; UTF-8 keeps the order of code points, which is Python's.
    return f"map[{' '.join(f'{key}:{text}' for key, text in sorted(values.items()))}]"
