"""Finds processes that listen on the agent's ports, in our network namespace."""

from __future__ import annotations

import ipaddress
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from proto.common.machine import procfs
from proto.common.machine.listening import plain
from supervisor.ownership import processes
from supervisor.ownership.policy import Port, Process

_LISTEN = "0A"  # net/tcp_states.h
_SOCKET = re.compile(r"socket:\[(\d+)\]")
MAX_BYTES = 4 * 1024 * 1024
"""Limit of a table of sockets: 25,000 lines."""


class Wanted(NamedTuple):
    """An address on which the agent will listen."""

    option: str
    address: str
    number: int


class Listener(NamedTuple):
    """A listening socket."""

    address: str
    number: int
    inode: int


def parse(text: str) -> Iterator[Listener]:
    """The listeners of a /proc/net/tcp or tcp6."""
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 10 or words[3] != _LISTEN:
            continue
        address, _, number = words[1].partition(":")
        try:
            yield Listener(_address(address), int(number, 16), int(words[9]))
        except (ValueError, struct.error):
            continue


def _address(text: str) -> str:
    """Parse an address of 32-bit words in the machine's byte order."""
    count = len(text) // 8
    words = [int(text[at : at + 8], 16) for at in range(0, count * 8, 8)]
    return str(ipaddress.ip_address(struct.pack(f"={count}I", *words)))


def collides(wanted: Wanted, listener: Listener) -> bool:
    """True if the two cannot both listen: one port, and equal addresses or a wildcard.

    Our sockets on a wildcard have both families (`proto.common.machine.listening`). Another process's socket on :: may
    have them, too, which the kernel's table does not say; its socket on 0.0.0.0 has IPv4 alone.
    """
    if wanted.number != listener.number:
        return False
    ours, theirs = (ipaddress.ip_address(plain(one.address)) for one in (wanted, listener))
    if ours.is_unspecified or ours == theirs:
        return True
    return theirs.is_unspecified and theirs.version in (ours.version, 6)


def taken(wanted: Iterable[Wanted], own: int) -> list[Port]:
    """The wanted ports on which another process than `own` listens, except actors of a killed supervisor."""
    listeners = [listener for table in ("tcp", "tcp6") for listener in parse(_table(table))]
    found = {one: listener.inode for one in wanted if one.number for listener in listeners if collides(one, listener)}
    if not found:
        return []
    owners = _owners(set(found.values()))
    return [
        Port(one.number, one.option, _served_by(pid) if pid else None)
        for one, inode in found.items()
        if (pid := owners.get(inode, 0)) != own and not _is_leftover(pid)
    ]


def _table(name: str) -> str:
    try:
        with Path("/proc/self/net", name).open(encoding="ascii", errors="replace") as file:
            return file.read(MAX_BYTES)
    except OSError:
        return ""


def _owners(inodes: set[int]) -> Mapping[int, int]:
    """The pid of a process that has each socket open."""
    found: dict[int, int] = {}
    for pid in processes.pids():
        for _, target in processes.descriptors(pid):
            match = _SOCKET.fullmatch(target)
            if match and int(match[1]) in inodes:
                found.setdefault(int(match[1]), pid)
        if len(found) == len(inodes):
            break
    return found


def _supervisor_of(pid: int) -> int:
    """The living supervisor of an actor; 0 for none."""
    return next((one for one in processes.ancestors(pid) - {os.getpid()} if procfs.title(one) == "supervisor"), 0)


def _is_leftover(pid: int) -> bool:
    """True for an actor or forkserver of a killed supervisor: it ends by itself."""
    return bool(pid) and procfs.title(pid).startswith("supervisor: ") and not _supervisor_of(pid)


def _served_by(pid: int) -> Process:
    return processes.describe(_supervisor_of(pid) or pid)
