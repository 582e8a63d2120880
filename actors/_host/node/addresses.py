"""The node's own address, reported as hostIP and probed for host-network pods."""

from __future__ import annotations

import logging
import socket

log = logging.getLogger(__name__)

# TEST-NET-1 and its IPv6 like: addresses nobody has, so that only the default route can answer for them.
_NOWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_UNSPECIFIED = {"0.0.0.0": _NOWHERE[0], "::": _NOWHERE[1]}
"""As --node-ip: find the address, of this family."""


def host_ips(configured: str) -> tuple[str, ...]:
    """--node-ip where given (one address, or two with a comma); else the source addresses of the default routes, IPv4
    first. Without any route: loopback, as on a machine that is cut off its pods still run.
    """
    if configured and configured not in _UNSPECIFIED:
        return tuple(address.strip() for address in configured.split(","))
    ways = [_UNSPECIFIED[configured]] if configured else _NOWHERE
    found = [address for family, nowhere in ways if (address := _source_address(family, nowhere))]
    if not found:
        log.warning("there is no default route: hostIP is 127.0.0.1; --node-ip sets another")
    return tuple(found) or ("127.0.0.1",)


def _source_address(family: socket.AddressFamily, destination: str) -> str:
    """Which own address the kernel would send from. Connecting a datagram socket sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((destination, 9))
            address: str = probe.getsockname()[0]
    except OSError:
        return ""
    return address
