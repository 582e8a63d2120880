"""Computes the Node's status from the machine, the container runtime and other actors."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from actors._base import Actor, gather
from actors._cgroup.quantities.allocatable import allocatable, capacity
from actors._host.files import paths
from actors._host.first_look import machine_of_agent
from actors._host.machine import Machine
from actors._host.node.addresses import LOOKUP_S, NoAddressError, node_ips
from actors._host.node.shutdown import NOT_READY
from actors.node import node_info, policy
from actors.node.node_resources import Resources, resources
from actors.node.policy import Object
from actors.node.runtime_status import NodeRuntime, RuntimeStatus
from proto.agent.supervisor import AgentHealth, GetAgentHealth
from proto.common import rfc3339
from proto.node.eviction import GetPressure
from proto.node.node import SetDevices
from proto.pods.objects import GetCsiNodeState
from proto.pods.pleg import GetRelistAge
from proto.wire.errors import ActorError, AskTimeout

log = logging.getLogger(__name__)

DISK_S = 5.0
PRESSURE_S = 2.0
ADDRESSES_S = LOOKUP_S + 3.0
LOOK_S = 10.0
"""The node's name is looked up as often as by the kubelet, also while a new node is reported more often."""


class NodeStatus:
    """State: the last looks at the machine and at the node's pressures."""

    def __init__(self, actor: Actor, runtime: NodeRuntime, shutting_down: Callable[[], bool]) -> None:
        self._actor, self._runtime, self._shutting_down = actor, runtime, shutting_down
        self.devices: SetDevices | None = None
        """None until resources has told them; the status then repeats those of the Node."""
        self.no_address = ""
        """Why the node has no address; empty when it has one."""
        self._own: tuple[str, ...] | None = None
        self._looked_at = -LOOK_S
        self._machine: Machine | None = None
        self._pressures: tuple[str, ...] | None = None
        self._health = AgentHealth(degraded=(), configuration="")
        self._began = time.monotonic()
        self._csi_node_written = False
        self._writing = False

    async def compute(self, stored: Object, volumes_in_use: tuple[str, ...] | None) -> Object:
        """The whole status. Raises OSError, AskTimeout while no look at the machine has succeeded."""
        settings = self._actor.settings
        found: Machine
        runtime: RuntimeStatus
        known = stored.get("conditions") or ()
        reads = (
            self._read_machine, self._runtime.read, self._pressure, self._pleg_problem, self._check_storage,
            self._ask_for_health, self._ask_for_csi_node,
        )  # fmt: skip
        found, runtime, pressures, pleg, storage, health, written, addresses = await gather(
            *[self._actor.spawn(read(), read.__name__) for read in reads],
            self._actor.spawn(self._addresses(stored), "_addresses"),
        )
        self._wait_for_runtime(runtime, known)
        csi_node = policy.csi_node_problem(known, time.monotonic() - self._began, written=written)
        problems = [*runtime.problems, pleg, csi_node, NOT_READY if self._shutting_down() else ""]
        agent = policy.AgentProblems(health.degraded, health.configuration, storage)
        now = rfc3339.now()
        amounts = Resources(
            policy.quantities(capacity(found, settings)), policy.quantities(allocatable(found, settings))
        )
        amounts = resources(amounts, stored, self.devices)
        pressures = policy.pressures_of(known) if pressures is None else pressures
        status: Object = {
            "capacity": amounts.capacity,
            "allocatable": amounts.allocatable,
            "conditions": policy.conditions(pressures, filter(None, problems), known, now, agent),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.server_port}},
            "declaredFeatures": node_info.declared_features(
                settings, users_on_host_network=self._runtime.users_on_host_network
            ),
            "nodeInfo": node_info.node_info(runtime.version, settings.kubelet_version),
            **runtime.status,
        }  # fmt: skip
        if volumes_in_use is None:  # volume has not told them to this incarnation
            volumes_in_use = tuple(stored.get("volumesInUse") or ()) or None
        if volumes_in_use is not None:
            status["volumesInUse"] = volumes_in_use
        if addresses is not None:
            status["addresses"] = addresses
        return status

    async def _addresses(self, stored: Object) -> list[Object] | None:
        """status.addresses; None to leave those of the Node: an external cloud provider's, or while none is found.

        Until an external provider has set them, the node's own are used if there is a --node-ip.
        """
        settings = self._actor.settings
        external = settings.cloud_provider == "external"
        found = () if external and not settings.node_ip else await self._own_addresses()
        if found is None or (external and stored.get("addresses")):
            return None
        return policy.addresses(settings.node_name, found)

    async def _own_addresses(self) -> tuple[str, ...] | None:
        """None while none is found, which is logged once."""
        if time.monotonic() - self._looked_at < LOOK_S:
            return self._own
        settings, problem = self._actor.settings, ""
        try:
            self._own = await self._actor.blocking(ADDRESSES_S, node_ips, settings.node_name, settings.node_ip)
        except AskTimeout as error:  # all threads are in use
            log.warning("cannot look for the node's addresses: %s; reporting the last ones", error)
            return self._own
        except NoAddressError as error:
            self._own, problem = None, str(error)
            if problem != self.no_address:
                log.error("the Node has no address: %s", problem)
        self.no_address, self._looked_at = problem, time.monotonic()
        return self._own

    async def _read_machine(self) -> Machine:
        """The capacity of the agent's start, as in the kubelet: admission and resource managers see no later change."""
        if self._machine is None:
            settings, supervisor = self._actor.settings, self._actor.bus.supervisor_pidfd
            args = settings.root_dir, settings.run_dir, supervisor
            self._machine = await self._actor.blocking(DISK_S, machine_of_agent, *args)
        return self._machine

    def _wait_for_runtime(self, runtime: RuntimeStatus, known: Iterable[Object]) -> None:
        """Raise AskTimeout while a runtime that this incarnation has not heard of may just be slow.

        A restart of this actor beside a busy runtime, or a dead pleg, makes no Ready node NotReady.
        """
        was_ready = any((one.get("type"), one.get("status")) == ("Ready", "True") for one in known)
        if not runtime.version and was_ready and time.monotonic() - self._began < self._runtime.patience_s:
            raise AskTimeout("the container runtime has not answered yet")

    async def _pressure(self) -> tuple[str, ...] | None:
        try:
            self._pressures = (await self._actor.peer("eviction").ask(GetPressure(), PRESSURE_S)).conditions
        except ActorError as error:
            log.debug("cannot get the node's pressures from eviction: %s; reporting the last ones", error)
        return self._pressures

    async def _pleg_problem(self) -> str:
        try:
            return policy.pleg_problem((await self._actor.peer("pleg").ask(GetRelistAge(), PRESSURE_S)).age_s)
        except ActorError as error:
            log.debug("cannot ask pleg for its last list: %s", error)
            return ""  # calls of the runtime go through pleg, so they fail too

    async def _ask_for_csi_node(self) -> bool:
        """True once the CSINode was written; it is not asked for again then."""
        if not self._csi_node_written:
            try:
                answer = await self._actor.peer("objects").ask(GetCsiNodeState(), PRESSURE_S)
                self._csi_node_written = answer.written
            except ActorError as error:
                log.debug("cannot ask objects for the CSINode: %s", error)
        return self._csi_node_written

    async def _ask_for_health(self) -> AgentHealth:
        try:
            self._health = await self._actor.peer("supervisor").ask(GetAgentHealth(), PRESSURE_S)
        except ActorError as error:
            log.debug("cannot ask the supervisor for the agent's health: %s; reporting the last one", error)
        return self._health

    async def _check_storage(self) -> str:
        """The error of a write below the root directory; empty when it can be written."""
        path = f"{paths.checkpoints_dir(self._actor.settings.root_dir)}/write-probe"
        late = f"a write of {path} does not end"
        if self._writing:
            return late  # in a thread of its own: no other one is to hang there
        self._writing = True
        try:
            await self._actor.blocking(DISK_S, self._write, path)
        except AskTimeout:
            return late
        except OSError as error:
            return f"cannot write {path}: {error.strerror}"
        return ""

    def _write(self, path: str) -> None:
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            Path(path).write_bytes(b"\0" * 4096)
            os.unlink(path)
        finally:
            self._writing = False
