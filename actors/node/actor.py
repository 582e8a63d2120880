"""The node actor: reports the Node to the API server, ends pods at the machine's shutdown, prepares pods' networks.

It runs with a kubeconfig, and without one where a grace period of shutdown, a pod CIDR or iptables chains are
configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors._base import Actor, handles
from actors._cri.relay import RelayedCri
from actors._events.recorder import Recorder
from actors.node.iptables import IptablesChains
from actors.node.runtime_status import NodeRuntime
from proto.node.node import Bootstrapped, SetDevices, SetVolumesInUse

if TYPE_CHECKING:
    from actors.node.reporting import NodeReport
    from actors.node.shutdown.manager import Shutdown


RETRY_S = 1.0
"""Until the runtime has the pod CIDR: without it, it may have no network for pods."""


class Node(Actor):
    """State: the report to the API server, and the shutdown of the machine."""

    name = "node"
    asks = frozenset({"pleg", "objects", "eviction", "pod_workers", "status"})

    async def rebuild(self) -> None:
        """Make the parts that the configuration asks for."""
        settings = self.settings
        self._runtime = NodeRuntime(RelayedCri(self.peer("pleg")), settings)
        events = Recorder(self.peer("events"))
        self._shutdown: Shutdown | None = None
        self._report: NodeReport | None = None
        if settings.shutdown_grace:
            from actors.node.shutdown.manager import Shutdown  # noqa: PLC0415 - few nodes need a D-Bus client

            self._shutdown = Shutdown(self, events, self._readiness_changed)
        self._chains = IptablesChains(self) if settings.make_iptables_util_chains else None
        if settings.kubeconfig:
            from actors.node.node_status import NodeStatus  # noqa: PLC0415 - saves the API client's memory
            from actors.node.reporting import NodeReport  # noqa: PLC0415

            status = NodeStatus(self, self._runtime, self._shutting_down)
            self._report = NodeReport(self, self._runtime, events, status)

    def on_ready(self) -> None:
        """Start the parts. Without a Node the runtime gets the configured pod CIDR."""
        if self._report is not None:
            self._report.start()
        elif self.settings.pod_cidr:
            self.spawn(self._pod_cidr_loop(), "pod CIDR")
        if self._shutdown is not None:
            self._shutdown.start()
        if self._chains is not None:
            self.spawn(self._chains.keep_loop(), "iptables")

    def describe(self) -> dict[str, Any]:
        """State for the console, of each part that there is."""
        return {
            "pod_cidr": self._runtime.pod_cidr,
            **(self._report.describe() if self._report is not None else {}),
            **({"shutdown": self._shutdown.describe()} if self._shutdown is not None else {}),
            **({"iptables": self._chains.describe()} if self._chains is not None else {}),
        }

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Tell a peer the Node's addresses, and pod_workers of a shutdown under way: by default it admits pods."""
        if name == "pod_workers" and self._shutdown is not None:
            self._shutdown.tell_pod_workers()
        if self._report is not None:
            self._report.tell_addresses(name)

    @handles(SetVolumesInUse)
    def on_set_volumes_in_use(self, message: SetVolumesInUse) -> None:
        """Only a Node lists them."""
        if self._report is not None:
            self._report.set_volumes_in_use(tuple(sorted(message.volumes)), message.number)

    @handles(SetDevices)
    def on_set_devices(self, message: SetDevices) -> None:
        """Only a Node offers them."""
        if self._report is not None:
            self._report.set_devices(message)

    @handles(Bootstrapped)
    def on_bootstrapped(self, _: Bootstrapped) -> None:
        """A Node that was deleted meanwhile is registered again."""
        if self._report is not None:
            self._report.register_again()

    def _shutting_down(self) -> bool:
        return self._shutdown is not None and self._shutdown.under_way

    def _readiness_changed(self) -> None:
        if self._report is not None:
            self._report.report_now()

    async def _pod_cidr_loop(self) -> None:
        while True:
            await self._runtime.give_pod_cidr(self.settings.pod_cidr)
            usual_s = self.settings.node_status_update_frequency_s
            await self.sleep(usual_s if self._runtime.pod_cidr else min(RETRY_S, usual_s))
            await self._runtime.notice_restart()


ACTOR = Node
