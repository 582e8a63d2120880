"""Reads the counters of network interfaces from /proc/PID/net/dev, for the node or for a pod's network namespace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from actors._host.files.untrusted_files import read_bounded

MOST_BYTES = 4 * 1024 * 1024
"""Largest table that is read: some 30,000 interfaces."""
_IGNORED = ("lo", "veth", "docker", "nerdctl")
"""Name prefixes of interfaces that the kubelet does not report: pods' host ends, and interfaces without traffic."""


class Interface(NamedTuple):
    """One interface's counters since its creation."""

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
    """Return the interfaces in a /proc/PID/net/dev that the kubelet reports, in file order."""
    found = []
    for line in text.splitlines()[2:]:
        name, _, rest = line.strip().partition(":")
        numbers = rest.split()
        if len(numbers) >= 12 and not name.startswith(_IGNORED):
            found.append(Interface(name, *map(int, numbers[:4]), *map(int, numbers[8:12])))
    return found


def table(path: str) -> str:
    """Read a net/dev file, bounded because a container can create any number of interfaces. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_bounded(descriptor, MOST_BYTES, path).decode(errors="replace")
    finally:
        os.close(descriptor)


def of_process(pid: int | str) -> list[Interface]:
    """Return the interfaces that the process sees; none after it has exited."""
    try:
        return parse(table(f"/proc/{pid}/net/dev"))
    except OSError:
        return []


def namespace(pid: int | str) -> int:
    """Return the inode of the process's network namespace; 0 after it has exited."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


def default_interface(path: str = "/proc/net/route") -> str:
    """Return the name of the default route's interface; empty without one."""
    try:
        lines = Path(path).read_text().splitlines()[1:]
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000":
            return fields[0]
    return ""
