"""Finds the node's addresses, which are reported as hostIP and probed for host-network pods."""

from __future__ import annotations

import logging
import socket

log = logging.getLogger(__name__)

# TEST-NET-1 and its IPv6 counterpart. No host has these addresses, so only the default route leads to them.
_NOWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_UNSPECIFIED = {"0.0.0.0": _NOWHERE[0], "::": _NOWHERE[1]}
"""Value of --node-ip to the family in which the address is looked up."""
_MAPPED = bytes(10) + b"\xff\xff"
"""The first bytes of an IPv6 address that stands for an IPv4 one."""


def configured_ips(text: str) -> tuple[str, ...]:
    """The addresses of --node-ip: one, or two with a comma. None for 0.0.0.0 and ::, which name a family."""
    given = tuple(_canonical(address.strip()) for address in text.split(",") if address.strip())
    return () if given and given[0] in _UNSPECIFIED else given


def _canonical(address: str) -> str:
    """The usual notation: 2001:DB8:0::1 is 2001:db8::1, and ::ffff:192.0.2.1 is 192.0.2.1, as in Go."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        packed = socket.inet_pton(family, address)
    except OSError:  # refused when the agent started
        return address
    if packed[:-4] == _MAPPED:
        family, packed = socket.AF_INET, packed[-4:]
    return socket.inet_ntop(family, packed)


def host_ips(configured: str) -> tuple[str, ...]:
    """Return the addresses of --node-ip, or the source addresses of the default routes.

    IPv4 comes first. Without any route the answer is 127.0.0.1: pods still run on a machine that has no network.
    """
    if given := configured_ips(configured):
        return given
    family = _canonical(configured.strip())
    ways = [_UNSPECIFIED[family]] if configured else _NOWHERE
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
