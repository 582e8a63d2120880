"""A provider for tests that gives whole CPUs, and the prelude that puts it into an actor process.

As the real managers do, it writes its file before it answers. Annotations of a pod say what goes wrong.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

from actors.resources import assembly
from actors.resources.machine.memory import NodeMemory
from actors.resources.machine.topology import Cpu, Topology
from actors.resources.model.hints import Hint, Hints
from actors.resources.model.provider import AllocationError, NotYetError
from proto.agent.settings import Settings
from proto.resources.grants import Grant
from proto.v1 import Container, Pod
from proto.v1.scalars.quantity import value

PRELUDE = "from tests.resources import provider; provider.install(); "
MACHINE = "from tests.resources import provider; provider.install_machine(); "
SOCKET = "from tests.resources import provider; provider.install_socket(); "
CPUS = frozenset(range(8))
DEVICE = "test.example/device"
SLOW_S = 30.0
"""An annotation `slow` lets a pod's CPUs wait so long for the file `go`."""


class CpuProvider:
    """Gives the lowest free CPUs of 8. State: pod UID to container to CPUs."""

    def __init__(self, directory: str, blocking: Callable[..., Awaitable[Any]]) -> None:
        self._blocking = blocking
        self._directory = Path(directory)
        self._file = self._directory / "test_state"
        self._state: dict[str, dict[str, list[int]]] = {}
        if self._file.exists():
            self._state = json.loads(self._file.read_text())

    def _save(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._state))
        os.replace(new, self._file)

    def _taken(self) -> set[int]:
        return {cpu for pod in self._state.values() for cpus in pod.values() for cpu in cpus}

    def container_hints(self, _pod: Pod, _container: Container) -> Hints:
        return {}

    def pod_hints(self, _pod: Pod) -> Hints:
        return {}

    async def allocate(self, pod: Pod, container: Container, affinity: Hint) -> None:  # noqa: ARG002
        if (self._directory / "registered").exists() < ("waits" in pod.metadata.annotations):
            raise NotYetError(f"no device plugin has registered {DEVICE}")
        if "slow" in pod.metadata.annotations:
            await self._blocking(SLOW_S, self._wait_for_go)
        count = value(container.resources.requests.get("cpu", 0))
        if container.name in self._state.get(pod.metadata.uid, {}):
            return
        free = sorted(CPUS - self._taken())
        if count > len(free):
            raise AllocationError("UnexpectedAdmissionError", f"{count} CPUs are wanted and {len(free)} are free")
        if count:
            self._state.setdefault(pod.metadata.uid, {})[container.name] = free[:count]
            self._save()

    def _wait_for_go(self) -> None:
        # In a pool thread.
        while not (self._directory / "go").exists():
            time.sleep(0.01)

    def release(self, pod_uid: str) -> None:
        if self._state.pop(pod_uid, None) is not None:
            self._save()

    def retain(self, pod_uids: Collection[str]) -> None:
        for uid in self._state.keys() - set(pod_uids):
            self.release(uid)

    def grant(self, pod: Pod, container: Container) -> Grant:
        cpus = self._state.get(pod.metadata.uid, {}).get(container.name, [])
        return Grant(cpus=",".join(map(str, cpus)), exclusive_cpus=bool(cpus), environment={"OF": container.name})


def install() -> None:
    """Let the actor have this provider only."""

    def make(settings: Settings, blocking: Callable[..., Awaitable[Any]], _: int) -> assembly.Managers:
        return assembly.Managers(others=(CpuProvider(settings.root_dir, blocking),), device_resources=(DEVICE,))

    assembly.make_managers = make


def install_machine() -> None:
    """Let the actor's machine have 9 cores in one NUMA node."""
    machine = Topology({number: Cpu(core=number, socket=0, node=0) for number in range(9)})
    assembly.read_topology = lambda: machine


def install_socket() -> None:
    """Let the actor's machine have a socket with 2 NUMA nodes, each with 4 cores and 2 GiB."""
    machine = Topology({number: Cpu(core=number, socket=0, node=number // 4) for number in range(8)})
    assembly.read_topology = lambda: machine
    assembly.read_distances = lambda: {0: {0: 10, 1: 20}, 1: {0: 20, 1: 10}}
    assembly.read_memory = lambda _: {node: NodeMemory(2 << 30) for node in range(2)}
