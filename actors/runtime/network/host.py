"""The machine's own network for every pod, used by agents without the privilege to create networks."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Any

from actors.runtime.model.state import Sandbox
from actors.runtime.network.api import Network

LOOPBACK = "127.0.0.1"
_ANYWHERE = ("192.0.2.1", 9)
"""TEST-NET-1: nothing is sent; the kernel only chooses a source address."""


class HostNetwork(Network):
    """Pods share the machine's ports and address."""

    kind = "host"

    def remark(self) -> str:
        """See Network."""
        return "without privileges pods have no networks of their own: all share the machine's network and ports"

    def attach(self, sandbox: Sandbox, netns: str, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002
        """See Network."""
        return {}, (machine_address(),)


def machine_address() -> str:
    """The machine's address towards other machines; the loopback's without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_ANYWHERE)
            address = str(sock.getsockname()[0])
        except OSError:
            return LOOPBACK
    return LOOPBACK if ipaddress.ip_address(address).is_unspecified else address
