"""Chooses a subnet for the runtime's own bridge that no other route of the machine leads into."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator
from pathlib import Path

from actors.runtime.network.api import NetworkError

SUBNETS = tuple(f"10.{number}.0.0/24" for number in (88, 89, 90, 91, 172, 173, 174, 175))
"""Candidates; podman uses the first, too."""
_ROUTES = Path("/proc/thread-self/net/route")


def routes() -> str:
    """The content of /proc/net/route in the calling thread's network namespace. Raises OSError."""
    return _ROUTES.read_text()


def free_subnet(table: str) -> str:
    """A random subnet of SUBNETS that no route leads into. Raises NetworkError.

    Random, because two agents that start at the same time would otherwise collide repeatedly.
    """
    taken = [subnet for _, subnet in _targets(table)]
    free = [subnet for subnet in SUBNETS if not any(ipaddress.ip_network(subnet).overlaps(one) for one in taken)]
    if not free:
        raise NetworkError(f"every subnet for pods is in use on this machine: {', '.join(SUBNETS)}; configure CNI")
    return random.choice(free)


def is_taken(table: str, subnet: str, but: str) -> bool:
    """Return True when a route of another link than `but` leads into the subnet."""
    wanted = ipaddress.ip_network(subnet)
    return any(link != but and wanted.overlaps(one) for link, one in _targets(table))


def _targets(table: str) -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    """Yield (link, target) of each route except default ones."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        target, mask = (int.from_bytes(bytes.fromhex(fields[column]), "little") for column in (1, 7))
        if mask:
            yield fields[0], ipaddress.IPv4Network((target, mask.bit_count()))
