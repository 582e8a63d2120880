"""The machine's own network for every pod: who may not make networks has no other to give."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Any

from actors.runtime.model.state import Sandbox

LOOPBACK = "127.0.0.1"
_ANYWHERE = ("192.0.2.1", 9)
"""TEST-NET-1: nothing is sent, the kernel is asked where from it would be."""


class HostNetwork:
    """Pods share the machine's ports, and have its address."""

    kind = "host"

    def problem(self) -> str:
        """See Network."""
        return ""

    def remark(self) -> str:
        """See Network."""
        return "without privileges there are no networks of pods: all pods are in the machine's, and share its ports"

    def attach(self, sandbox: Sandbox, netns: str, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002
        """See Network."""
        return {}, (machine_address(),)

    def detach(self, sandbox: Sandbox, directory: Path) -> None:
        """See Network."""

    def release(self, directory: Path) -> None:
        """See Network."""

    def settle(self) -> None:
        """See Network."""


def machine_address() -> str:
    """The one that others would see; loopback's on a machine without a way to anybody."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_ANYWHERE)
            address = str(sock.getsockname()[0])
        except OSError:
            return LOOPBACK
    return LOOPBACK if ipaddress.ip_address(address).is_unspecified else address
