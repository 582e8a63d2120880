"""Computes the Node's status from the machine, the container runtime and other actors."""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors._base import Actor, gather
from actors._cgroup.quantities.allocatable import allocatable, capacity
from actors._host.machine import Machine, read_machine
from actors._host.node.addresses import host_ips
from actors._host.node.shutdown import NOT_READY
from actors.node import node_info, policy
from actors.node.policy import Object
from actors.node.runtime_status import NodeRuntime, RuntimeStatus
from proto.common import rfc3339
from proto.node.eviction import GetPressure
from proto.wire.errors import ActorError, AskTimeout

log = logging.getLogger(__name__)

DISK_S = 5.0
PRESSURE_S = 2.0


class NodeStatus:
    """State: the last looks at the machine and at the node's pressures."""

    def __init__(self, actor: Actor, runtime: NodeRuntime, shutting_down: Callable[[], bool]) -> None:
        self._actor, self._runtime, self._shutting_down = actor, runtime, shutting_down
        self._machine: Machine | None = None
        self._pressures: tuple[str, ...] = ()

    async def compute(self, stored: Object, volumes_in_use: tuple[str, ...] | None) -> Object:
        """The whole status. Raises OSError, AskTimeout while no look at the machine has succeeded."""
        settings = self._actor.settings
        found: Machine
        runtime: RuntimeStatus
        looks = (self._look_at_machine, "machine"), (self._runtime.look, "runtime"), (self._pressure, "pressure")
        found, runtime, pressures = await gather(*[self._actor.spawn(look(), name) for look, name in looks])
        problems = [*runtime.problems, *([NOT_READY] if self._shutting_down() else [])]
        now = rfc3339.now()
        status: Object = {
            "addresses": policy.addresses(
                settings.node_name, host_ips(settings.node_ip), bool(settings.node_ip),
                settings.cloud_provider == "external", stored.get("addresses") or (),
            ),
            "capacity": policy.quantities(capacity(found, settings)),
            "allocatable": policy.quantities(allocatable(found, settings)),
            "conditions": policy.conditions(
                pressures, problems, stored.get("conditions") or (), now
            ),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.server_port}},
            "declaredFeatures": node_info.declared_features(settings),
            "nodeInfo": node_info.node_info(runtime.version),
            **runtime.status,
        }  # fmt: skip
        if volumes_in_use is not None:
            status["volumesInUse"] = volumes_in_use
        return status

    async def _look_at_machine(self) -> Machine:
        try:
            self._machine = await self._actor.blocking(DISK_S, read_machine, self._actor.settings.root_dir)
        except (OSError, AskTimeout) as error:
            if self._machine is None:
                raise
            log.warning("cannot read the machine's capacity: %s; reporting the last one", error)
        return self._machine

    async def _pressure(self) -> tuple[str, ...]:
        try:
            self._pressures = (await self._actor.peer("eviction").ask(GetPressure(), PRESSURE_S)).conditions
        except ActorError as error:
            log.debug("cannot get the node's pressures from eviction: %s; reporting the last ones", error)
        return self._pressures
