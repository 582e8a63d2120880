"""Hands out free loopback ports that the kernel gives to no connection.

They are below the kernel's range for connections. A free port in that range may belong to a connection by the time a
test listens on it. A client that keeps trying such a port may even be given it and be connected to itself.

A port is bound some time after it is handed out, and again after a restart. Meanwhile it is free for all to see. So
each worker of xdist has ports of its own, and hands out none twice before all of them.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path

_LOWEST = 16_000
"""Above the ports that have an owner by convention: kubelet, etcd, API server."""
_FEW = 100
"""So many are left when those handed out first may be used again."""


_given: set[int] = set()
"""Ports that this process has handed out."""


def free_ports(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[int]:
    """So many, each another one."""
    own = _of_this_worker()
    if len(own) - len(_given.intersection(own)) < _FEW:
        _given.clear()
    found: list[int] = []
    for port in random.sample(own, len(own)):
        if len(found) == count:
            return found
        with contextlib.suppress(OSError), socket.socket(type=kind) as one:
            if port not in _given:
                one.bind(("", port))
                found.append(port)
                _given.add(port)
    raise AssertionError(f"{own} has no {count} free ports")


def _of_this_worker() -> range:
    """One of so many parts as there are workers; all ports outside of xdist."""
    given_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    every = range(_LOWEST, given_from) if given_from > _LOWEST + 1000 else range(_LOWEST, 32_768)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return every[number % workers :: workers]


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """One of them."""
    return free_ports(1, kind)[0]
