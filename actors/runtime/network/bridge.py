"""A network of our own, where there is no CNI configuration: a bridge, and an address of its subnet for each pod.

Pods and node reach each other. Beyond the node pods get where the machine forwards and translates addresses; that is
not arranged here, and host ports are not mapped. Addresses in use are those on record.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from actors.runtime.kernel import in_namespace
from actors.runtime.network import netlink
from actors.runtime.network.api import NetworkError
from actors.runtime.state import Sandbox

INTERFACE = "eth0"
SUBNETS = tuple(f"10.{number}.0.0/24" for number in (88, 89, 90, 91, 172, 173, 174, 175))
"""To choose from; the first is podman's, too."""
_LINK_NAME = 15
"""IFNAMSIZ, without its end."""


class BridgeNetwork:
    """Made with the first pod."""

    def __init__(self, name: str, subnet: str, in_use: Callable[[], Iterable[str]]) -> None:
        """`in_use` gives the addresses of the pods on record."""
        self.name = name[:_LINK_NAME]
        self.subnet = ipaddress.ip_network(subnet)
        self._in_use = in_use
        self._lock = threading.Lock()
        self._given: set[str] = set()
        """Addresses of sandboxes that are being made, by which they are not on record yet."""
        self._there = False

    def problem(self) -> str:
        """See Network."""
        return ""

    @property
    def gateway(self) -> str:
        """The node's address on the bridge."""
        return str(self.subnet.network_address + 1)

    def attach(self, sandbox: Sandbox, netns: str, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002
        """See Network."""
        if any(mapping.host_port for mapping in sandbox.config.port_mappings):
            raise NetworkError("the embedded runtime's own network maps no host ports; configure CNI with portmap")
        with self._lock:
            address = free_address(self.subnet, {self.gateway, *self._in_use(), *self._given})
            self._given.add(address)
        try:
            self._connect(sandbox.record.id, netns, address)
        except OSError as error:
            self._given.discard(address)
            raise NetworkError(f"cannot connect the pod to bridge {self.name}: {error}") from error
        return {"bridge": self.name, "subnet": str(self.subnet), "address": address}, (address,)

    def _connect(self, sandbox_id: str, netns: str, address: str) -> None:
        with self._lock:
            if not self._there or not Path("/sys/class/net", self.name).exists():
                netlink.add_bridge(self.name)
                netlink.add_address(self.name, f"{self.gateway}/{self.subnet.prefixlen}")
                netlink.set_up(self.name)
                self._there = True
        link = link_name(sandbox_id)
        netlink.add_veth(link, INTERFACE, netns)
        netlink.set_up(link, self.name)

        def inside() -> None:
            netlink.add_address(INTERFACE, f"{address}/{self.subnet.prefixlen}")
            netlink.set_up(INTERFACE)
            netlink.add_default_route(self.gateway)

        in_namespace(netns, inside)

    def detach(self, sandbox: Sandbox, directory: Path) -> None:  # noqa: ARG002
        """See Network. Its address is free once its record says that it has none; the bridge goes with the last pod."""
        try:
            netlink.delete(link_name(sandbox.record.id))
        except OSError as error:
            raise NetworkError(f"cannot delete the pod's link: {error}") from error
        given = sandbox.record.network.get("address", "")
        self._given.discard(given)
        others = {address for address in self._in_use() if address != given} | self._given
        with self._lock:
            if not others and not any(Path("/sys/class/net", self.name).glob("brif/*")):
                self._there = False
                netlink.delete(self.name)


def free_subnet(routes: str) -> str:
    """The first of SUBNETS that no route of the machine, as /proc/net/route has them, leads to. Raises NetworkError."""
    taken = []
    for line in routes.splitlines()[1:]:
        fields = line.split()
        target, mask = (int.from_bytes(bytes.fromhex(fields[column]), "little") for column in (1, 7))
        if mask:
            taken.append(ipaddress.ip_network((target, mask.bit_count())))
    for subnet in SUBNETS:
        if not any(ipaddress.ip_network(subnet).overlaps(one) for one in taken):
            return subnet
    raise NetworkError(f"every subnet for pods is in use on this machine: {', '.join(SUBNETS)}; configure CNI")


def link_name(sandbox_id: str) -> str:
    """The node's end of the pod's link."""
    return f"nv{sandbox_id[: _LINK_NAME - 2]}"


def free_address(subnet: ipaddress.IPv4Network | ipaddress.IPv6Network, used: set[str]) -> str:
    """The first that nobody has. Raises NetworkError when all are taken."""
    for address in subnet.hosts():
        if str(address) not in used:
            return str(address)
    raise NetworkError(f"no address is left in {subnet}")
