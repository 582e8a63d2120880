"""The runtime's own pod network, used without a CNI configuration: a bridge whose subnet gives each pod an address.

Pods and node reach each other, host ports lead to pods, and traffic of pods to other machines gets the node's address.
One nftables table with the bridge's name does this (ports.py). It follows from the recorded pods and is replaced
atomically. On kernels without it, pods have no host ports and reach only the node and each other.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from actors.runtime.model.namespace_threads import in_namespace
from actors.runtime.model.state import Sandbox
from actors.runtime.network import conntrack, netlink, nftables, subnets
from actors.runtime.network.api import BANDWIDTH_ANNOTATIONS, Network, NetworkError
from actors.runtime.network.ports import Pod, check_free, host_ports, translation, unmapped_ports

INTERFACE = "eth0"
NEEDS = "CONFIG_NF_TABLES, CONFIG_NFT_NAT, CONFIG_NFT_MASQ, CONFIG_NFT_CT and CONFIG_NFT_FIB_IPV4"
"""Options or modules of the kernel."""
_LINK_NAME = 15
"""IFNAMSIZ without the final NUL."""
_LINK_PREFIX = "nv"
_SYSCTLS = Path("/proc/sys/net/ipv4")
log = logging.getLogger(__name__)


class BridgeNetwork(Network):
    """Creates its bridge with the first pod."""

    def __init__(self, name: str, subnet: str, on_record: Callable[[], Mapping[str, Pod]]) -> None:
        """`subnet` is that of the pods. Without pods it may be replaced, if another route uses it.

        `on_record` returns the recorded pods of this network, by sandbox ID.
        """
        self.name = name[:_LINK_NAME]
        self.subnet = ipaddress.ip_network(subnet)
        self._on_record = on_record
        self._lock = threading.Lock()
        self._given: dict[str, Pod] = {}
        """Pods of sandboxes that are being created and have no record yet."""
        self._left: set[str] = set()
        """Detached sandboxes whose record still has an address."""
        self._written: nftables.Table | None = None
        self._udp = True
        """True if the previous table may have sent UDP to pods; a new process does not know it."""
        self._lack = ""

    @property
    def gateway(self) -> str:
        """The node's address on the bridge."""
        return str(self.subnet.network_address + 1)

    def attach(self, sandbox: Sandbox, netns: str, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002
        """See Network."""
        id_, ports = sandbox.record.id, host_ports(sandbox.config)
        for mapping in unmapped_ports(sandbox.config):
            metadata = sandbox.config.metadata
            log.warning(
                "pod %s/%s: host port %d of %s is not mapped: pods on the runtime's own bridge have IPv4 only",
                metadata.namespace, metadata.name, mapping.host_port, mapping.host_ip,
            )  # fmt: skip
        if any(name in sandbox.config.annotations for name in BANDWIDTH_ANNOTATIONS.values()):
            metadata = sandbox.config.metadata
            log.warning(
                "pod %s/%s: its bandwidth annotations have no effect on the runtime's own bridge; configure CNI",
                metadata.namespace, metadata.name,
            )  # fmt: skip
        with self._lock:
            check_free(ports, self._pods())
            try:
                self._take_subnet()
            except OSError as error:
                raise NetworkError(f"cannot make bridge {self.name}: {error}") from error
            taken = {pod.address for pod in (*self._on_record().values(), *self._given.values())}
            address = free_address(self.subnet, {self.gateway, *taken})
            self._given[id_] = Pod(address, ports)
        try:
            self._connect(id_, netns, address, hairpin=bool(ports))
            with self._lock:
                self._translate()
        except BaseException as error:
            with contextlib.suppress(OSError, NetworkError):
                self._disconnect(id_)
            if isinstance(error, OSError):
                raise NetworkError(f"cannot connect the pod to bridge {self.name}: {error}") from error
            raise
        return {"bridge": self.name, "subnet": str(self.subnet), "address": address}, (address,)

    def _take_subnet(self) -> None:
        """Create the bridge with a subnet that no other route uses. Raises OSError, NetworkError.

        Other programs choose subnets, too, and without pods and bridge this one's was free to take.
        """
        if netlink.exists(self.name) or self._pods():
            return
        subnet = str(self.subnet)
        for _ in subnets.SUBNETS:
            if subnets.is_taken(subnets.routes(), subnet, but=self.name):
                subnet = subnets.free_subnet(subnets.routes())
            self.subnet = ipaddress.ip_network(subnet)
            self._make_bridge()
            # Check again: of two programs that chose it at the same time, at least one sees the other and moves.
            if not subnets.is_taken(subnets.routes(), subnet, but=self.name):
                return
            netlink.delete(self.name)
        raise NetworkError(f"cannot find a subnet for pods: other programs took {subnet}, too; configure CNI")

    def _make_bridge(self) -> None:
        if not netlink.exists(self.name):
            netlink.add_bridge(self.name, mac_of(self.gateway))
        # Each time: a killed process may have left the bridge unfinished.
        netlink.add_address(self.name, f"{self.gateway}/{self.subnet.prefixlen}")
        netlink.set_up(self.name)

    def _connect(self, sandbox_id: str, netns: str, address: str, *, hairpin: bool) -> None:
        with self._lock:
            self._make_bridge()
        link = link_name(sandbox_id)
        netlink.add_veth(link, INTERFACE, netns, mac_of(address))
        netlink.set_up(link, self.name)
        if hairpin:  # the pod may connect to its own host port, where netfilter sees bridged frames
            netlink.set_hairpin(link)

        def inside() -> None:
            netlink.add_address(INTERFACE, f"{address}/{self.subnet.prefixlen}")
            netlink.set_up(INTERFACE)
            netlink.add_default_route(self.gateway)

        in_namespace(netns, inside)

    def detach(self, sandbox: Sandbox, directory: Path) -> None:  # noqa: ARG002
        """See Network. The address is free once the record has none; bridge and table go with the last pod."""
        try:
            self._disconnect(sandbox.record.id)
        except OSError as error:
            raise NetworkError(f"cannot take the pod from bridge {self.name}: {error}") from error

    def _disconnect(self, id_: str) -> None:
        netlink.delete(link_name(id_))
        with self._lock:
            self._given.pop(id_, None)
            self._left.add(id_)
            self._follow()

    def reconcile(self) -> None:
        """See Network. Failures are retried with the next pod."""
        try:
            with self._lock:
                delete_links(self.name, but={link_name(id_) for id_ in self._pods()})
                self._follow()
        except (OSError, NetworkError) as error:
            log.warning("cannot reconcile bridge %s: %s; trying again with the next pod", self.name, error)

    def _follow(self) -> None:
        """Update bridge and table to the current pods. Raises OSError, NetworkError."""
        if self._pods():
            self._translate()
            return
        remove(self.name)
        if self._udp:
            self._forget_flows(())
        self._written, self._udp = None, False

    def _pods(self) -> dict[str, Pod]:
        recorded = dict(self._on_record())
        self._left &= recorded.keys()
        self._given = {id_: pod for id_, pod in self._given.items() if id_ not in recorded}
        return {id_: pod for id_, pod in (recorded | self._given).items() if id_ not in self._left}

    def _translate(self) -> None:
        """Write the table that follows from the pods. Raises NetworkError where host ports need it."""
        pods = list(self._pods().values())
        mapped = any(pod.ports for pod in pods)
        table = translation(self.name, str(self.subnet), pods)
        try:
            if rewritten := table != self._written or not nftables.exists(
                self.name
            ):  # another program flushed all tables
                _set("ip_forward", "1")
                nftables.replace(table)
                if mapped:  # only with the table: it protects the machine's loopback from pods
                    _set(f"conf/{self.name}/route_localnet", "1")
        except OSError as error:
            self._cannot(error, mapped=mapped)
            return
        udp = any(one.protocol == "udp" for pod in pods for one in pod.ports)
        if rewritten and (udp or self._udp):
            self._forget_flows(pods)
        self._written, self._udp, self._lack = table, udp, ""

    def _forget_flows(self, pods: Collection[Pod]) -> None:
        conntrack.forget_stale(pods, str(self.subnet), netlink.local_addresses() | {self.gateway})

    def _cannot(self, error: OSError, *, mapped: bool) -> None:
        lack = missing_feature(error)
        if mapped or nftables.exists(self.name):
            raise NetworkError(f"cannot set up host ports on bridge {self.name}: {lack}") from error
        if lack != self._lack:
            log.warning("pods of bridge %s reach the node and each other only: %s", self.name, lack)
        self._lack = lack


def delete_links(bridge: str, but: Collection[str] = ()) -> None:
    """Delete links of missing pods. Raises OSError."""
    for link in netlink.ports_of(bridge):
        if len(link) == _LINK_NAME and link.startswith(_LINK_PREFIX) and link not in but:
            log.info("deleting link %s of a missing pod", link)
            netlink.delete(link)


def remove(name: str) -> None:
    """Remove a bridge and its table. Idempotent. Raises OSError."""
    delete_links(name)
    if nftables.exists(name):
        nftables.delete(name)
    if netlink.exists(name):
        netlink.delete(name)


def missing_feature(error: OSError) -> str:
    """The missing kernel feature behind an error, and the remedy."""
    if error.filename is not None:
        return f"cannot write {error.filename}: {error.strerror}; set it, or configure CNI"
    if error.errno in nftables.ABSENT:
        return f"this kernel lacks a part of nftables' NAT: {error.strerror}; it takes {NEEDS}, or configure CNI"
    return f"nftables: {error.strerror}"


def _set(name: str, value: str) -> None:
    path = _SYSCTLS / name
    try:
        if path.read_text().strip() != value:
            path.write_text(value)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def link_name(sandbox_id: str) -> str:
    """Name of the node's end of the pod's link."""
    return f"{_LINK_PREFIX}{sandbox_id}"[:_LINK_NAME]


def mac_of(address: str) -> bytes:
    """MAC address of an IP address: its next owner gets the same, so neighbours' caches stay right."""
    return b"\x0a\x58" + ipaddress.IPv4Address(address).packed


def free_address(subnet: ipaddress.IPv4Network | ipaddress.IPv6Network, used: set[str]) -> str:
    """The first unused address. Raises NetworkError without one."""
    for address in subnet.hosts():
        if str(address) not in used:
            return str(address)
    raise NetworkError(f"no address is left in {subnet}")
