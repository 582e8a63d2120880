"""The registry of CSI drivers: plugins with a socket in ROOT_DIR/plugins_registry, for as long as the socket exists.

A helper registers each plugin (`csi/registration.py`). Plugins of types that no manager takes are refused here, and
told so; device plugins and DRA drivers are left to the resources actor.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any

from actors._base import Actor
from actors._plugins import kinds
from actors._plugins.watcher import KeptOutError, NotRegisteredError, OtherOwnerError, Watcher
from actors.volume.csi import policy as csi
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.steps.csi import DriverInfo, Register
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

CONNECT_S = 2.0
"""A socket on a disk that hangs: its helper finds out."""
ABANDONED = "nothing listens at its socket; start the plugin again, or remove the socket"
"""Of a plugin that was killed, as by a rolling update: its socket stays, in the name of a pod that is gone."""


class Registry:
    """The registered drivers; an Owner of plugins. Runs in the actor's mailbox thread."""

    def __init__(
        self, actor: Actor, pool: Pool, registered: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        """`registered` gets the name of each new driver; `changed` is called when drivers come or go."""
        self._actor, self._pool, self._registered = actor, pool, registered
        self.changed = changed
        self._watcher: Watcher[DriverInfo] = Watcher(actor, self)

    def start(self) -> None:
        """Register the present drivers, and later ones."""
        self._watcher.start()

    def endpoint(self, driver: str) -> str:
        """Socket path of the driver's service; empty when the driver is not registered."""
        info = self.drivers().get(driver)
        return info.endpoint if info is not None else ""

    def drivers(self) -> dict[str, DriverInfo]:
        """Drivers by name; of two sockets of one driver, the later registration, which has a higher version."""
        return {one.name: one for one in self._watcher.plugins().values()}

    def update(self, before: DriverInfo, now: DriverInfo) -> None:
        """Replace a driver's node information; ignored when the driver has registered again meanwhile."""
        if now != before and self._watcher.replace(before, now):
            log.info("CSI driver %s: the node takes %s volumes", now.name, now.max_volumes or "any number of")
            self.changed()

    @property
    def is_complete(self) -> bool:
        """True once every plugin with a socket is identified."""
        return self._watcher.is_complete

    def describe(self) -> dict[str, Any]:
        """Drivers by name, and the errors of refused plugins by socket."""
        return {
            "drivers": {
                name: {"node_id": one.node_id, "endpoint": one.endpoint, "topology": one.topology}
                for name, one in self.drivers().items()
            },
            "refused": self._watcher.refused(),
        }

    # Owner

    async def register(self, path: str) -> DriverInfo:
        """See Owner."""
        if await self._is_abandoned(path):  # each try would fork a helper, as long as the socket is there
            raise NotRegisteredError(ABANDONED)
        try:
            (outcome,) = await self._pool.run(Register(path, await self._highest()), dedicated=True)
        except (HelperGone, HelperHung) as problem:
            raise NotRegisteredError(f"plugin at {path} does not answer: {problem}") from problem
        if outcome.driver is None:
            if outcome.error.startswith(kinds.OTHER_OWNER):
                raise OtherOwnerError(outcome.error)
            if csi.is_displacement_problem(outcome.error):
                raise KeptOutError(outcome.error)
            raise NotRegisteredError(outcome.error)
        driver: DriverInfo = outcome.driver
        refusal = csi.displacement_problem(driver.name, driver.version, path, await self._highest())
        if refusal:  # another socket of the driver was quicker
            raise KeptOutError(refusal)
        return driver

    async def _highest(self) -> dict[str, str]:
        """Versions of registered drivers, by name. A killed driver, whose socket stays, keeps out no other one."""
        abandoned = {path for path in tuple(self._watcher.plugins()) if await self._is_abandoned(path)}
        return {one.name: one.version for path, one in self._watcher.plugins().items() if path not in abandoned}

    async def _is_abandoned(self, path: str) -> bool:
        try:
            return await self._actor.blocking(CONNECT_S, _refuses, path)
        except AskTimeout:
            return False

    def registered(self, plugin: DriverInfo) -> None:
        """See Owner."""
        log.info("CSI driver %s is registered: node ID %s, at %s", plugin.name, plugin.node_id, plugin.endpoint)
        self._registered(plugin.name)

    def gone(self, plugin: DriverInfo) -> None:
        """See Owner."""
        log.info("CSI driver %s is no longer registered", plugin.name)


def _refuses(path: str) -> bool:
    """Return True when no process listens at the socket. Every other problem is left to the helper. For a pool thread.

    A gRPC server takes a connection that ends at once for a load balancer's check.
    """
    with socket.socket(socket.AF_UNIX) as one:
        one.setblocking(False)  # a full queue of connections must not stop the thread
        try:
            one.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
