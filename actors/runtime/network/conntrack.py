"""Deletes UDP flows that the kernel still translates by outdated host port rules, with ctnetlink.

Rules apply to the first packet of a flow only, and a client that keeps sending keeps its flow. A flow older than a pod
would never reach it. A flow to a removed pod would go to the next owner of its address. TCP connections end with the
pod.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

from actors.runtime.network import nftables, wire
from actors.runtime.network.ports import Pod
from actors.runtime.network.wire import attribute, nested, parse

_GET, _DELETE = 1 << 8 | 1, 1 << 8 | 2
_HEAD_BYTES = 4
_IPV4 = struct.pack("!BBH", socket.AF_INET, 0, 0)
_TUPLE_ORIG, _TUPLE_REPLY, _FILTER = 1, 2, 25
_TUPLE_IP, _TUPLE_PROTO = 1, 2
_SRC, _DST = 1, 2
_NUM, _SPORT, _DPORT = 1, 2, 3
_BY_PROTOCOL = 1 << 3
_UDP = nftables.PROTOCOLS["udp"]
log = logging.getLogger(__name__)


class Flow(NamedTuple):
    """A tracked flow between a client and its peer."""

    target: tuple[str, int]
    """Address and port that the client sends to."""
    responder: tuple[str, int]
    key: bytes
    """The kernel's key of the flow."""


def is_stale(flow: Flow, pods: Collection[Pod], subnet: str, machine: Collection[str]) -> bool:
    """Return True when a new flow of this kind would go elsewhere. `machine` are the machine's own addresses."""
    address, port = flow.target
    if address not in machine and not ipaddress.ip_address(address).is_loopback:
        return False
    targets = [
        (pod.address, one.container_port)
        for pod in pods
        for one in pod.ports
        if one.protocol == "udp" and one.host_port == port and one.host_ip in ("", address)
    ]
    if targets:
        return flow.responder not in targets
    return flow.responder != flow.target and ipaddress.ip_address(flow.responder[0]) in ipaddress.ip_network(subnet)


def forget_stale(pods: Collection[Pod], subnet: str, machine: Collection[str]) -> None:
    """Delete stale flows. Flows that this process may not list stay until they time out."""
    try:
        for flow in [flow for flow in flows() if is_stale(flow, pods, subnet, machine)]:
            _forget(flow)
    except OSError as error:
        log.warning("cannot list UDP flows; old flows may keep their old targets: %s", error)


def flows() -> Iterator[Flow]:
    """Yield the IPv4 UDP flows. Raises OSError."""
    udp = nested(_TUPLE_ORIG, nested(_TUPLE_PROTO, attribute(_NUM, bytes([_UDP]))))
    only = nested(_FILTER, wire.number(1, _BY_PROTOCOL), wire.number(2, 0))  # Linux 5.8; older kernels list all flows
    for content in wire.dump(wire.NETFILTER, _GET, _IPV4 + udp + only):
        attributes = parse(content[_HEAD_BYTES:])
        protocol, _, asked = _tuple(attributes.get(_TUPLE_ORIG, b""))
        _, answers, _ = _tuple(attributes.get(_TUPLE_REPLY, b""))
        if protocol == _UDP and asked is not None and answers is not None:
            yield Flow(asked, answers, nested(_TUPLE_ORIG, attributes[_TUPLE_ORIG]))


def _forget(flow: Flow) -> None:
    try:
        wire.request(wire.NETFILTER, _DELETE, 0, _IPV4 + flow.key)
    except OSError as error:
        if error.errno not in nftables.ABSENT:
            raise


def _tuple(data: bytes) -> tuple[int, tuple[str, int] | None, tuple[str, int] | None]:
    """Protocol, source and destination."""
    attributes = parse(data)
    ip, proto = parse(attributes.get(_TUPLE_IP, b"")), parse(attributes.get(_TUPLE_PROTO, b""))
    return proto.get(_NUM, b"\0")[0], _end(ip.get(_SRC), proto.get(_SPORT)), _end(ip.get(_DST), proto.get(_DPORT))


def _end(address: bytes | None, port: bytes | None) -> tuple[str, int] | None:
    if address is None or port is None:
        return None
    return str(ipaddress.IPv4Address(address)), int.from_bytes(port, "big")
