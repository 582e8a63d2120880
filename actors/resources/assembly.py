"""Builds the managers of the node's resources from the settings, this machine and the state files."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from actors._base import Actor
from actors._cgroup.quantities.allocatable import withheld
from actors._host import system
from actors._host.files import paths
from actors._host.first_look import first_look, machine_of_agent
from actors.resources.cpu.manager import CpuManager, CpuSettings
from actors.resources.devices.directory import Directory
from actors.resources.devices.manager import DeviceManager
from actors.resources.dra.checkpoint import decode, encode
from actors.resources.dra.claims import Claim
from actors.resources.dra.manager import DraManager
from actors.resources.machine.cpusets import parse, printed
from actors.resources.machine.memory import Memory, read_memory
from actors.resources.machine.numa import read_distances
from actors.resources.machine.sysfs import TopologyError, read_topology
from actors.resources.machine.topology import Topology
from actors.resources.memory.manager import MemoryManager, MemorySettings
from actors.resources.memory.reserved import Reservation
from actors.resources.model.counting import Counted
from actors.resources.model.provider import Provider
from actors.resources.state_file import StateFile
from actors.resources.topology.policy import Settings as TopologySettings
from proto.agent.settings import Settings
from proto.v1.scalars.quantity import milli_value

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Managers:
    """The managers that the settings ask for."""

    cpus: CpuManager | None = None
    """None with the policy none, which assigns nothing."""
    memory: MemoryManager | None = None
    """The same with the policy None."""
    others: tuple[Provider, ...] = ()
    topology: TopologySettings = field(default_factory=TopologySettings)
    machine: Topology = field(default_factory=lambda: Topology({}))
    """Empty with the policy none of the CPU manager."""
    device_resources: tuple[str, ...] = ()
    """Extended resources beside those of device plugins."""
    counted: Counted = field(default_factory=Counted)
    """Pods, with the counters that have counted them."""

    @property
    def providers(self) -> tuple[Provider, ...]:
        """In the order in which they assign."""
        return (*self.others, *self.pinning)

    @property
    def pinning(self) -> tuple[CpuManager | MemoryManager, ...]:
        """The managers of CPUs and memory."""
        return tuple(one for one in (self.cpus, self.memory) if one is not None)

    @property
    def shared_cpus(self) -> str:
        """CPUs of containers without exclusive ones. Empty: any."""
        return printed(self.cpus.shared) if self.cpus is not None else ""


def make_managers(settings: Settings, blocking: Callable[..., Awaitable[Any]], supervisor_pidfd: int = -1) -> Managers:
    """Read the machine and the state files. Blocks on the disk. `blocking`: that of the actor.

    The machine is that of the agent's start, as for the Node and for admission; without a supervisor it is read anew.
    Raises PolicyError, TopologyError and OSError; their messages name the setting or the file, and what to do.
    """
    os.makedirs(settings.root_dir, mode=0o750, exist_ok=True)
    run = settings.run_dir, supervisor_pidfd
    machine = Topology({})
    if settings.cpu_manager_policy != "none":
        machine = first_look("cpus", read_topology, Topology, *run)
    topology = TopologySettings()
    if settings.topology_manager_policy != "none":
        topology = _topology_settings(settings, _distances(*run))
    # With the policy none too: as in the kubelet, it refuses the state file of another one.
    counted = Counted()
    cpus = _cpu_manager(settings, machine, blocking, counted)
    memory = _memory_manager(settings, blocking, counted, supervisor_pidfd)
    return Managers(
        cpus=cpus if settings.cpu_manager_policy != "none" else None,
        memory=memory if settings.memory_manager_policy != "None" else None,
        topology=topology,
        machine=machine,
        counted=counted,
    )


def _distances(run_dir: str, supervisor_pidfd: int) -> dict[int, dict[int, int]]:
    return first_look("numa", read_distances, dict[int, dict[int, int]], run_dir, supervisor_pidfd)


def _topology_settings(settings: Settings, distances: dict[int, dict[int, int]]) -> TopologySettings:
    return TopologySettings(
        policy=settings.topology_manager_policy,
        scope=settings.topology_manager_scope,
        options=settings.topology_manager_policy_options,
        numa_nodes=frozenset(distances),
        distances=distances,
        pod_level=settings.pod_level_resource_managers,
    )


def _cpu_manager(
    settings: Settings, machine: Topology, blocking: Callable[..., Awaitable[Any]], counted: Counted
) -> CpuManager:
    reserved = [milli_value(amounts.get("cpu", 0)) for amounts in (settings.system_reserved, settings.kube_reserved)]
    return CpuManager(
        machine,
        CpuSettings(
            policy=settings.cpu_manager_policy,
            options=settings.cpu_manager_policy_options,
            reserved_cpus=parse(settings.reserved_system_cpus),
            reserved_count=math.ceil(sum(reserved) / 1000),
            alpha_options=True,  # the gates were checked with the configuration
            pod_level=settings.pod_level_resource_managers,
            topology_policy=settings.topology_manager_policy,
            topology_scope=_scope(settings),
        ),
        settings.root_dir,
        blocking,
        counted,
    )


def _scope(settings: Settings) -> str:
    """topologyManagerScope, which the policy none does not have."""
    return settings.topology_manager_scope if settings.topology_manager_policy != "none" else "container"


def _memory_manager(
    settings: Settings, blocking: Callable[..., Awaitable[Any]], counted: Counted, supervisor_pidfd: int
) -> MemoryManager:
    if settings.memory_manager_policy == "None":
        return MemoryManager({}, MemorySettings(), settings.root_dir, blocking)
    run = settings.run_dir, supervisor_pidfd
    machine = machine_of_agent(settings.root_dir, *run)
    nodes = first_look("memory", lambda: read_memory(machine.memory_bytes), Memory, *run)
    wanted = MemorySettings(
        policy=settings.memory_manager_policy,
        reserved=tuple(Reservation(one.numa_node, one.limits) for one in settings.reserved_memory),
        kept=withheld(machine, settings),
        pod_level=settings.pod_level_resource_managers,
        topology_scope=_scope(settings),
    )
    return MemoryManager(nodes, wanted, settings.root_dir, blocking, counted)


def make_dra_manager(
    actor: Actor,
    changed: Callable[[], None],
    health_changed: Callable[[], None],
    pods: Callable[[], Collection[str] | None],
) -> DraManager:
    """Read the state files of claims and health. Blocks on the disk. Raises PolicyError. Arguments: DraManager's."""
    file: StateFile[Iterable[Claim]] = StateFile(actor.settings.root_dir, "dra", encode, decode)
    manager = DraManager(actor, file, file.load() or (), changed, health_changed, pods)
    manager.health_file.load()
    return manager


def make_device_manager(actor: Actor, changed: Callable[[], None]) -> DeviceManager:
    """Read the machine's NUMA nodes and the checkpoint of devices. Blocks on the disk. `changed`: as DeviceManager."""
    try:
        numa_nodes = tuple(_distances(actor.settings.run_dir, actor.bus.supervisor_pidfd))
    except TopologyError as error:
        log.warning("%s; devices get no topology hints", error)
        numa_nodes = ()
    directory = Directory(paths.device_plugins_dir(actor.settings.root_dir), system.boot_id())
    manager = DeviceManager(actor, directory, numa_nodes, changed)
    try:
        manager.load()
    except OSError as error:
        manager.unread.begin(str(error))
        log.error("%s", manager.unread.problem)
    return manager
