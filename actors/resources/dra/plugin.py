"""The gRPC client of one plugin of a DRA driver, and the driver's registered plugins.

Source: pkg/kubelet/cm/dra/plugin of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from actors._cri.errors import CriError
from actors._metrics import kubelet as metrics
from actors._plugins.client import Client
from actors._plugins.watcher import NotRegisteredError
from actors.resources.dra.claims import Claim
from actors.resources.dra.health_stream import HealthStream
from actors.resources.dra.policy import ClaimError
from actors.resources.model.plugin_bounds import error_text
from proto.common.safe_text import clipped
from proto.plugins import dra_pb2 as pb
from proto.plugins import drav1beta1_pb2 as v1beta1

log = logging.getLogger(__name__)

CALL_S = 45.0
"""The kubelet's deadline of a call to a driver."""
SERVICES = {
    "v1.DRAPlugin": pb.DESCRIPTOR.services_by_name["DRAPlugin"],
    "v1beta1.DRAPlugin": v1beta1.DESCRIPTOR.services_by_name["DRAPlugin"],
}
"""By the name in a plugin's supported versions, the preferred first."""
MOST_DRIVERS, MOST_PLUGINS = 128, 8


class Plugin:
    """A connection to a registered plugin of a driver."""

    def __init__(self, driver: str, endpoint: str, service: str) -> None:
        self.driver, self.endpoint = driver, endpoint
        self.client = Client(endpoint)
        self.health: HealthStream | None = None
        self.reports_too_many = False
        """Set once it has reported more devices than are kept."""
        self._service = SERVICES[service]

    async def prepare(self, claims: Iterable[Claim]) -> Any:
        """NodePrepareResources: results by claim UID. Raises CriError."""
        return await self._call("NodePrepareResources", pb.NodePrepareResourcesRequest(claims=map(_claim, claims)))

    async def unprepare(self, claims: Iterable[Claim]) -> Any:
        """NodeUnprepareResources: results by claim UID. Raises CriError."""
        return await self._call("NodeUnprepareResources", pb.NodeUnprepareResourcesRequest(claims=map(_claim, claims)))

    async def _call(self, rpc: str, request: Any) -> Any:
        began, code = time.monotonic(), "OK"
        try:
            return (await self.client.call(self._service, rpc, request, CALL_S)).claims
        except CriError as error:
            code = error.code
            raise
        finally:
            method = f"/{self._service.full_name}/{rpc}"
            metrics.DRA_CALL_SECONDS.observe(time.monotonic() - began, self.driver, code, method)

    def close(self) -> None:
        """End its calls and streams."""
        if self.health is not None:
            self.health.close()
        self.client.close()


class Plugins:
    """A Handler of plugins. While a driver is updated, it has two plugins; the latest that answers is used."""

    def __init__(self, added: Callable[[Plugin], None], changed: Callable[[], None]) -> None:
        """`added` gets each new plugin; `changed` is called when plugins come or go."""
        self._added, self._changed = added, changed
        self._plugins: dict[str, list[Plugin]] = {}

    def check(self, driver: str) -> None:
        """Raise ClaimError if the driver has no plugin."""
        self._of(driver)

    async def call(self, driver: str, rpc: str, call: Callable[[Plugin], Any]) -> Any:
        """The answer of the driver's latest plugin; of an older one if nothing listens there. Raises ClaimError."""
        plugins = self._of(driver)
        for plugin in reversed(plugins):
            try:
                return await call(plugin)
            except CriError as error:
                if error.code != "Unavailable" or plugin is plugins[0]:
                    raise ClaimError(f"{rpc}: {error_text(error.grpc_text())}") from error
        raise AssertionError("a driver without plugins is not kept")

    def has(self, plugin: Plugin) -> bool:
        """True while the plugin is registered."""
        return plugin in self._plugins.get(plugin.driver, ())

    def at(self, driver: str, endpoint: str) -> Plugin | None:
        """The registered plugin at an endpoint."""
        return next((one for one in self._plugins.get(driver, ()) if one.endpoint == endpoint), None)

    def count(self) -> int:
        """Number of registered plugins of all drivers."""
        return sum(map(len, self._plugins.values()))

    def drivers(self) -> dict[str, list[str]]:
        """Endpoints by driver, the latest registration last."""
        return {name: [one.endpoint for one in plugins] for name, plugins in sorted(self._plugins.items())}

    def usable(self) -> frozenset[str]:
        """Drivers with a connected plugin. Each other plugin is connected to, which takes effect later."""
        connected = {name: [one.client.is_connected() for one in plugins] for name, plugins in self._plugins.items()}
        return frozenset(name for name, states in connected.items() if any(states))

    def _of(self, driver: str) -> Sequence[Plugin]:
        if driver not in self._plugins:
            raise ClaimError(f"DRA driver {driver} is not registered")
        return tuple(self._plugins[driver])

    # Handler

    def problem(self, name: str, endpoint: str, versions: Iterable[str]) -> str:
        """See Handler."""
        offered = list(versions)
        if _chosen(offered):
            return ""
        problem = (
            f"none of services supported by the plugin ({_quoted(offered)}) are supported by the kubelet "
            f"({_quoted(SERVICES)})"
            if offered
            else "empty list of supported gRPC services (aka supported versions)"
        )
        return f"invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: {problem}"

    async def register(self, name: str, endpoint: str, versions: Iterable[str]) -> None:
        """See Handler."""
        present = self._plugins.get(name, [])
        if any(one.endpoint == endpoint for one in present):
            raise NotRegisteredError(f"endpoint {endpoint} already registered for DRA driver plugin {name}")
        if len(self._plugins) >= MOST_DRIVERS or len(present) >= MOST_PLUGINS:
            raise NotRegisteredError(f"there are {MOST_DRIVERS} DRA drivers, or {MOST_PLUGINS} plugins of this one")
        plugin = Plugin(name, endpoint, _chosen(versions))
        self._plugins.setdefault(name, []).append(plugin)
        plugin.client.is_connected()  # begins to connect
        log.info("DRA driver %s is registered, at %s", name, endpoint)
        self._added(plugin)
        self._changed()

    def deregister(self, name: str, endpoint: str) -> None:
        """See Handler."""
        for plugin in self._plugins.get(name, []):
            if plugin.endpoint == endpoint:
                self._plugins[name].remove(plugin)
                plugin.close()
                log.info("DRA driver %s is no longer registered at %s", name, endpoint)
                break
        if not self._plugins.get(name, ()):
            self._plugins.pop(name, None)
        self._changed()


def _chosen(versions: Iterable[str]) -> str:
    """The preferred service that the plugin offers; empty without one."""
    offered = set(versions)
    return next((one for one in SERVICES if one in offered), "")


def _quoted(services: Iterable[str]) -> str:
    """A list as Go's %q prints it."""
    return clipped("[" + " ".join(f'"{one}"' for one in services) + "]")


def _claim(claim: Claim) -> Any:
    return pb.Claim(namespace=claim.key.namespace, uid=claim.uid, name=claim.key.name)
