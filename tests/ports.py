"""Hands out free loopback ports that the kernel gives to no connection.

They are below the kernel's range for connections. A free port in that range may belong to a connection by the time a
test listens on it. A client that keeps trying such a port may even be given it and be connected to itself.
"""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

_LOWEST = 16_000
"""Above the ports that have an owner by convention: kubelet, etcd, API server."""


def free_ports(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[int]:
    """So many, each another one."""
    given_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    own = range(_LOWEST, given_from) if given_from > _LOWEST + 1000 else range(_LOWEST, 32_768)
    found: list[int] = []
    for port in random.sample(own, len(own)):
        if len(found) == count:
            return found
        with contextlib.suppress(OSError), socket.socket(type=kind) as one:
            one.bind(("", port))
            found.append(port)
    raise AssertionError(f"{own} has no {count} free ports")


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """One of them."""
    return free_ports(1, kind)[0]
