"""Finds the node's addresses, which are reported as hostIP and probed for host-network pods."""

from __future__ import annotations

import logging
import socket

log = logging.getLogger(__name__)

# TEST-NET-1 and its IPv6 counterpart. No host has these addresses, so only the default route leads to them.
_NOWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_UNSPECIFIED = {"0.0.0.0": _NOWHERE[0], "::": _NOWHERE[1]}
"""Value of --node-ip to the family in which the address is looked up."""


def host_ips(configured: str) -> tuple[str, ...]:
    """Return the addresses of --node-ip (one, or two with a comma), or the source addresses of the default routes.

    IPv4 comes first. Without any route the answer is 127.0.0.1: pods still run on a machine that has no network.
    """
    if configured and configured not in _UNSPECIFIED:
        return tuple(address.strip() for address in configured.split(","))
    ways = [_UNSPECIFIED[configured]] if configured else _NOWHERE
    found = [address for family, nowhere in ways if (address := _source_address(family, nowhere))]
    if not found:
        log.warning("cannot find a default route: hostIP is 127.0.0.1; set --node-ip")
    return tuple(found) or ("127.0.0.1",)


def _source_address(family: socket.AddressFamily, destination: str) -> str:
    # The kernel chooses the source address on connect. Connecting a datagram socket sends nothing.
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((destination, 9))
            address: str = probe.getsockname()[0]
    except OSError:
        return ""
    return address
