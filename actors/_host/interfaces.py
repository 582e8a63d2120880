"""Counters of network interfaces, of the node and of a pod's network namespace, through any process in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from actors._host.files.untrusted_files import read_bounded

MOST_BYTES = 4 * 1024 * 1024
"""Of a table of interfaces: some 30,000 of them."""
_IGNORED = ("lo", "veth", "docker", "nerdctl")
"""The kubelet shows none of the node's interfaces whose name begins so: pods' ends, and what has no traffic."""


class Interface(NamedTuple):
    """One interface's counters since it was made."""

    name: str
    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int


def parse(text: str) -> list[Interface]:
    """The interfaces of a /proc/PID/net/dev that the kubelet shows, in its order."""
    found = []
    for line in text.splitlines()[2:]:
        name, _, rest = line.strip().partition(":")
        numbers = rest.split()
        if len(numbers) >= 12 and not name.startswith(_IGNORED):
            found.append(Interface(name, *map(int, numbers[:4]), *map(int, numbers[8:12])))
    return found


def table(path: str) -> str:
    """A net/dev of the kernel's; its namespace may be a container's, which makes interfaces as it likes. OSError."""
    with open(path, "rb", buffering=0) as file:
        return read_bounded(file.fileno(), MOST_BYTES, path).decode(errors="replace")


def of_process(pid: int | str) -> list[Interface]:
    """What the process sees; nothing when it has gone."""
    try:
        return parse(table(f"/proc/{pid}/net/dev"))
    except OSError:
        return []


def namespace(pid: int | str) -> int:
    """The inode of its network namespace; 0 when it has gone."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


def default_interface(path: str = "/proc/net/route") -> str:
    """The interface of the default route; empty without one."""
    try:
        lines = Path(path).read_text().splitlines()[1:]
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000":
            return fields[0]
    return ""
