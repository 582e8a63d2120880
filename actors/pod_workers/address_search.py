"""Looks for an address of a machine that had none when pod_workers started, as before DHCP has answered."""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors._base import Actor
from actors._host.node.addresses import LOOPBACK, configured_ips
from actors.pod_workers.assembly import HOST_INFO_S, find_host_ips
from actors.pod_workers.shared.worker_context import WorkerContext
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

ADDRESS_S = 10.0
"""Interval of the looks."""


class AddressSearch:
    """Ends with the first address, or once node has told those of the Node."""

    def __init__(self, actor: Actor, context: WorkerContext, use: Callable[[tuple[str, ...]], None]) -> None:
        """`use` takes the addresses that were found."""
        self._actor, self._context, self._use = actor, context, use

    def begin(self) -> None:
        """Look after ADDRESS_S, if an address is missing."""
        if self._is_missing():
            self._actor.after(ADDRESS_S, lambda: self._actor.spawn(self._look(), "look for an address"))

    def _is_missing(self) -> bool:
        """True while neither this machine nor the Node gave an address, and no cloud provider is to give it."""
        ips, settings = self._context.host_ips, self._actor.settings
        if not settings.kubeconfig:
            return ips == (LOOPBACK,) and configured_ips(settings.node_ip) != ips
        return not ips and not self._context.host_ips_told and settings.cloud_provider != "external"

    async def _look(self) -> None:
        try:
            found = await self._actor.blocking(HOST_INFO_S, find_host_ips, self._actor.settings)
        except AskTimeout as error:
            log.debug("cannot look for the machine's address: %s", error)
            found = ()
        if self._is_missing() and found not in ((), (LOOPBACK,)):
            self._use(found)
        self.begin()
