"""A child entry whose forkserver reports its first child without descriptor and with a wrong pid."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import msgpack

from tests.supervisor.children import main

__all__ = ["main"]

DONE = "TEST_FORKSERVER_DONE"
"""Environment: a file that exists once it has."""
_send_fds = socket.send_fds


def _lie_once(end: socket.socket, packets: list[Any], descriptors: list[int]) -> int:
    flag = Path(os.environ[DONE])
    if flag.exists():
        return _send_fds(end, packets, descriptors)
    flag.touch()
    *packet, _ = msgpack.unpackb(packets[0])
    return _send_fds(end, [msgpack.packb([*packet, 1])], [])


socket.send_fds = _lie_once
