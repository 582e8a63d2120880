"""Collects the node ports that pods map, and finds conflicts. Pure.

Source: pkg/scheduler/framework (HostPortInfo) and pkg/scheduler/util (GetHostPorts).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proto.v1 import Pod

ANY = "0.0.0.0"


class HostPort(NamedTuple):
    """One port of the node; on every address if `ip` is 0.0.0.0."""

    protocol: str
    port: int
    ip: str


def host_ports(pod: Pod) -> frozenset[HostPort]:
    """Ports of the pod's containers and sidecars. Other init containers have ended before these listen."""
    sidecars = (one for one in pod.spec.init_containers if one.restart_policy == "Always")
    return frozenset(
        HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY)
        for container in (*sidecars, *pod.spec.containers)
        for port in container.ports
        if port.host_port
    )


def conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Return True when a wanted port is taken, on the same address or on all addresses."""
    addresses: dict[tuple[str, int], set[str]] = {}
    for one in taken:
        addresses.setdefault((one.protocol, one.port), set()).add(one.ip)
    for one in wanted:
        there = addresses.get((one.protocol, one.port))
        if there and (one.ip == ANY or ANY in there or one.ip in there):
            return True
    return False
