"""Decides host port mappings and masquerading: the requested mappings, their conflicts, and the rules that follow.

The rules do the work of CNI's plugins portmap and bridge (with ipMasq). A connection to a mapped port of a machine's
address goes to the pod and keeps its client's address. Connections from the machine's loopback and from pods of the
same bridge are masqueraded: their answers would otherwise miss the machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from actors.runtime.network import nftables
from actors.runtime.network.api import NetworkError
from actors.runtime.network.nftables import Chain, Rule, Statement, Table
from proto.cri import api_pb2 as pb

LOOPBACK = "127.0.0.0/8"
MULTICAST = "224.0.0.0/4"
PROTOCOL_NAMES = {pb.TCP: "tcp", pb.UDP: "udp", pb.SCTP: "sctp"}


class HostPort(NamedTuple):
    """A port of the machine that leads to a pod's port."""

    protocol: str
    host_ip: str
    """Empty for all addresses of the machine."""
    host_port: int
    container_port: int

    def __str__(self) -> str:
        return f"{self.host_ip or '*'}:{self.host_port}/{self.protocol}"

    def collides(self, other: HostPort) -> bool:
        """Return True when a connection could match both."""
        if (self.protocol, self.host_port) != (other.protocol, other.host_port):
            return False
        return not self.host_ip or not other.host_ip or self.host_ip == other.host_ip


class Pod(NamedTuple):
    """A pod's address and host ports."""

    address: str
    ports: tuple[HostPort, ...] = ()


def host_ports(config: pb.PodSandboxConfig) -> tuple[HostPort, ...]:
    """The mapped host ports of a sandbox. Raises NetworkError."""
    found: dict[tuple[str, str, int], HostPort] = {}
    for mapping in config.port_mappings:
        if mapping.host_port == 0 or (host_ip := _host_ip(mapping.host_ip)) is None:
            continue
        if not (0 < mapping.host_port < 65536 and 0 < mapping.container_port < 65536):
            raise NetworkError(
                f"cannot map host port {mapping.host_port} to container port {mapping.container_port}: "
                "ports are 1 to 65535"
            )
        one = HostPort(PROTOCOL_NAMES[mapping.protocol], host_ip, mapping.host_port, mapping.container_port)
        if (other := found.setdefault(one[:3], one)) != one:
            raise NetworkError(
                f"cannot map host port {one}: both to container port {other.container_port} and to {one.container_port}"
            )
    return tuple(found.values())


def unmapped_ports(config: pb.PodSandboxConfig) -> list[pb.PortMapping]:
    """Ports of IPv6 addresses, which are not mapped, as with portmap: pods here have IPv4 only. Raises NetworkError."""
    return [one for one in config.port_mappings if one.host_port and _host_ip(one.host_ip) is None]


def _host_ip(text: str) -> str | None:
    """The address for rules, empty for all; None for IPv6. Raises NetworkError."""
    if not text:
        return ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise NetworkError(f"cannot map host ports of {text!r}: it is not an IP address") from None
    if address.version != 4:
        return None
    return "" if address.is_unspecified else str(address)


def check_free(ports: Iterable[HostPort], pods: Mapping[str, Pod]) -> None:
    """Require that no other pod has one of the ports. `pods` are by sandbox ID. Raises NetworkError."""
    for one in ports:
        for id_, pod in pods.items():
            if any(one.collides(other) for other in pod.ports):
                raise NetworkError(f"cannot map host port {one}: pod sandbox {id_} has it ({pod.address})")


def translation(name: str, subnet: str, pods: Iterable[Pod]) -> Table:
    """The table of the bridge `name`, whose pods have addresses of `subnet`."""
    mapped = sorted(((one, pod.address) for pod in pods for one in pod.ports), key=_order)
    out = (nftables.saddr(subnet), nftables.daddr(subnet, but=True), nftables.daddr(MULTICAST, but=True))
    chains = [
        Chain("postrouting", "nat", nftables.POSTROUTING, nftables.SRCNAT),
        Chain("loopback", "filter", nftables.PREROUTING, nftables.RAW),
    ]
    rules = [Rule("postrouting", (*out, nftables.masquerade())), *_loopback_rules(name)]
    if mapped:
        chains += [
            Chain("hostports"),
            Chain("prerouting", "nat", nftables.PREROUTING, nftables.DSTNAT),
            Chain("output", "nat", nftables.OUTPUT, nftables.DSTNAT),
        ]
        rules += _port_rules(name, subnet)
        rules += [_mapping(one, address) for one, address in mapped]
    return Table(name, tuple(chains), tuple(rules))


def _order(mapped: tuple[HostPort, str]) -> tuple[bool, tuple[HostPort, str]]:
    """Ports of one address go before the same ports of all addresses."""
    return not mapped[0].host_ip, mapped


def _loopback_rules(name: str) -> list[Rule]:
    """Protect the machine's loopback from pods.

    route_localnet lets the bridge carry answers to 127.0.0.1. These are addressed to the bridge. A packet to or from
    the loopback comes from a pod that tries to reach local services.
    """
    pod = nftables.iifname(name)
    return [
        Rule("loopback", (pod, nftables.daddr(LOOPBACK), nftables.drop())),
        Rule("loopback", (pod, nftables.saddr(LOOPBACK), nftables.drop())),
    ]


def _port_rules(name: str, subnet: str) -> list[Rule]:
    here, go, masquerade = nftables.to_the_machine(), nftables.jump("hostports"), nftables.masquerade()
    within = (nftables.saddr(subnet), nftables.daddr(subnet), nftables.translated())
    return [
        Rule("prerouting", (here, go)),
        Rule("output", (here, go)),
        Rule("postrouting", (*within, masquerade)),
        Rule("postrouting", (nftables.oifname(name), nftables.saddr(LOOPBACK), masquerade)),
    ]


def _mapping(one: HostPort, address: str) -> Rule:
    to: tuple[Statement, ...] = (nftables.daddr(f"{one.host_ip}/32"),) if one.host_ip else ()
    port = nftables.dport(one.protocol, one.host_port)
    return Rule("hostports", (*to, port, nftables.dnat(address, one.container_port)))
