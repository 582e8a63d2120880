"""MemoryManager, the Provider of memory: policy `None` or `Static`, and the state file."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from actors._metrics.kubelet import MEMORY_PINNING_ERRORS, MEMORY_PINNINGS
from actors.resources.errors import PolicyError
from actors.resources.machine.memory import Memory
from actors.resources.memory import pod_level, static
from actors.resources.memory.model import AssignmentError, Block, State
from actors.resources.memory.requests import is_pinned
from actors.resources.memory.reserved import Reservation, reserved_by_node
from actors.resources.memory.state import state_file
from actors.resources.model.counting import Counted, Pinnings
from actors.resources.model.hints import Hint, Hints
from actors.resources.model.pod_level import EmptyPoolError, has_own_resources
from actors.resources.model.provider import AllocationError, write_failure
from proto.resources.grants import Grant
from proto.v1 import Container, Pod
from proto.v1.scalars.quantity import QuantityError
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

NONE, STATIC = "None", "Static"

WRITE_S = 10.0
"""Longest wait for the state file's disk, in seconds."""
MOST_NODES = 16
"""Most NUMA nodes with the policy Static: the work for a hint doubles with each node."""


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """The settings of the memory manager."""

    policy: str = NONE
    """memoryManagerPolicy."""
    reserved: tuple[Reservation, ...] = ()
    """reservedMemory."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """Bytes of systemReserved, kubeReserved and evictionHard together, by resource."""
    pod_level: bool = False
    """The gate PodLevelResourceManagers."""
    topology_scope: str = "container"
    """topologyManagerScope; `container` with the policy none."""


class MemoryManager:
    """Memory of Guaranteed pods on NUMA nodes. With policy `None` it grants nothing."""

    def __init__(
        self,
        machine: Memory,
        settings: MemorySettings,
        directory: str,
        blocking: Callable[..., Awaitable[Any]],
        counted: Counted | None = None,
    ) -> None:
        """Read the state file in `directory` and write it if it is missing. Blocks on the disk.

        `blocking`: that of the actor; it starts the write at the call. Raises PolicyError, QuantityError, OSError.
        """
        self._pinnings = Pinnings(MEMORY_PINNINGS, MEMORY_PINNING_ERRORS, counted or Counted())
        self._blocking = blocking
        self._file = state_file(directory, settings.policy, pod_level=settings.pod_level)
        self._static = settings.policy == STATIC
        self._pod_level = settings.pod_level
        self._pod_scope = settings.topology_scope == "pod"
        self._number = 0
        self._state = self._restored(_empty(machine, settings))

    def container_hints(self, pod: Pod, container: Container) -> Hints:
        """See Provider."""
        return self._hints(pod, lambda: static.container_hints(self._state, pod, container))

    def pod_hints(self, pod: Pod) -> Hints:
        """See Provider."""
        policy = pod_level if has_own_resources(pod) else static
        return self._hints(pod, lambda: policy.pod_hints(self._state, pod))

    async def allocate(self, pod: Pod, container: Container, affinity: Hint) -> None:
        """See Provider. Memory that cannot be written is not assigned."""
        if not self._serves(pod):
            return
        with self._pinnings.asked(pod, container):
            await self._allocate(pod, container, affinity)

    async def _allocate(self, pod: Pod, container: Container, affinity: Hint) -> None:
        try:
            if whole := self._pod_scope and has_own_resources(pod):
                changed = pod_level.allocate(self._state, pod, affinity)
            else:
                changed = static.allocate(self._state, pod, container, affinity)
        except EmptyPoolError as error:
            raise AllocationError("EmptyPodSharedPoolError", str(error)) from error
        except (AssignmentError, QuantityError) as error:
            raise _unexpected(str(error)) from error
        if not changed:
            return
        try:
            await self._write()
        except (OSError, ActorError) as error:
            if whole:
                static.remove_pod(self._state, pod.metadata.uid)
            else:
                static.remove(self._state, pod.metadata.uid, container.name)
            raise write_failure(self._file.path, error) from error

    def holds(self, pod: Pod) -> bool:
        """Return True when no container of the pod lacks memory of its own that it asks for."""
        if not self._serves(pod):
            return True
        try:
            return static.holds(self._state, pod)
        except QuantityError:
            return False  # `allocate` fails with the reason

    def release(self, pod_uid: str) -> None:
        """See Provider. The file follows later: after a kill `retain` frees the pod again."""
        if static.remove_pod(self._state, pod_uid):
            self._write()

    def retain(self, pod_uids: Collection[str]) -> None:
        """See Provider."""
        gone = sorted(self._state.entries.keys() - set(pod_uids))
        for uid in gone:
            log.info("pod %s is gone; its memory is free again", uid)
            static.remove_pod(self._state, uid)
        if gone:
            self._write()

    def grant(self, pod: Pod, container: Container) -> Grant:
        """See Provider."""
        nodes = {number for block in self.blocks(pod, container) for number in block.nodes}
        return Grant(memory_nodes=",".join(map(str, sorted(nodes))))

    def blocks(self, pod: Pod, container: Container) -> tuple[Block, ...]:
        """Memory of a container (podresources API)."""
        return tuple(self._state.blocks(pod.metadata.uid, container.name) or ())

    def allocatable(self) -> list[Block]:
        """Memory that containers can have, by node and resource (podresources API). Empty with policy `None`."""
        return [
            Block([number], resource, table.allocatable)
            for number, node in sorted(self._state.machine.items())
            for resource, table in sorted(node.tables.items())
            if table.allocatable
        ]

    def _serves(self, pod: Pod) -> bool:
        return self._static and is_pinned(pod, pod_level=self._pod_level)

    def _hints(self, pod: Pod, compute: Callable[[], Hints]) -> Hints:
        if not self._serves(pod):
            return {}
        try:
            return compute()
        except QuantityError:
            return {}  # `allocate` fails with the reason

    def _restored(self, empty: State) -> State:
        known = self._file.load()
        if known is None or (self._static and known == State()):
            self._file.write(self._next(), self._file.content(empty))
            return empty
        if not self._static:
            return State()
        if not known.machine:
            raise self._file.refused("[memorymanager] machine state can not be empty when it has memory assignments")
        # A kubelet that was killed in between has written a pod before its containers, and its nodes last.
        known.pods = {uid: blocks for uid, blocks in known.pods.items() if uid in known.entries}
        try:
            static.check(known, empty)
        except PolicyError as error:
            raise self._file.refused(str(error)) from error
        return known

    def _write(self) -> Awaitable[Any]:
        return self._blocking(WRITE_S, self._file.write, self._next(), self._file.content(self._state))

    def _next(self) -> int:
        self._number += 1
        return self._number


def _empty(machine: Memory, settings: MemorySettings) -> State:
    """The state without assignments. Raises PolicyError, QuantityError."""
    if settings.policy == NONE:
        return State()
    if settings.policy != STATIC:
        raise PolicyError(f'unknown policy: "{settings.policy}"')
    if len(machine) > MOST_NODES:
        raise PolicyError(
            f"cannot use memoryManagerPolicy Static on {len(machine)} NUMA nodes, the limit is {MOST_NODES}; set None"
        )
    return static.initial(machine, reserved_by_node(settings.reserved, settings.kept, machine))


def _unexpected(reason: str) -> AllocationError:
    return AllocationError("UnexpectedAdmissionError", f"Allocate failed due to {reason}, which is unexpected")
