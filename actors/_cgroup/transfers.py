"""Parses the kernel's counters of a cgroup's disk transfers, v1 and v2. Pure.

v2 has io.stat (admin-guide/cgroup-v2), v1 has blkio.throttle.io_service_bytes and io_serviced
(admin-guide/cgroup-v1/blkio-controller).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

MOST_DISKS = 256
"""Most disks of one cgroup. The kernel lists the newest first, so the oldest ones are kept: new disks hide none."""

_OPERATION = re.compile(rb"^(\d+):(\d+) (\w+) (\d+)\n", re.MULTILINE)
_DISK = re.compile(rb"(\d+):(\d+)((?: [\w.]+=\S+)+)\n")
"""Some kernels write a disk without counters before another one on the same line: `8:16 8:0 rbytes=1`."""
_COUNTER = re.compile(rb" (rbytes|wbytes|rios|wios)=(\d+)")


class Transfers(NamedTuple):
    """A cgroup's reads and writes of one disk since its creation, those of cgroups below it included.

    Keys are the operations of v1: Read and Write. v1 has Sync, Async, Discard and Total, too.
    """

    major: int
    minor: int
    bytes: dict[str, int]
    requests: dict[str, int]

    @property
    def numbers(self) -> str:
        """`major:minor`, the kernel's name of the disk."""
        return f"{self.major}:{self.minor}"


COUNTERS: tuple[tuple[str, str, Callable[[Transfers], int]], ...] = (
    ("fs_reads_bytes_total", "Bytes read from disks.", lambda one: one.bytes.get("Read", 0)),
    ("fs_reads_total", "Reads from disks.", lambda one: one.requests.get("Read", 0)),
    ("fs_writes_bytes_total", "Bytes written to disks.", lambda one: one.bytes.get("Write", 0)),
    ("fs_writes_total", "Writes to disks.", lambda one: one.requests.get("Write", 0)),
)
"""Name after `container_`, help and value of cAdvisor's counters for each disk."""


def parse_v1(service_bytes: bytes, serviced: bytes) -> tuple[Transfers, ...]:
    """Return the transfers in blkio.throttle.io_service_bytes and io_serviced, or in their recursive forms."""
    found: dict[tuple[int, int], Transfers] = {}
    for text, field in ((service_bytes, "bytes"), (serviced, "requests")):
        for major, minor, operation, value in _OPERATION.findall(text):
            disk = int(major), int(minor)
            counted: dict[str, int] = getattr(found.setdefault(disk, Transfers(*disk, {}, {})), field)
            counted[operation.decode()] = int(value)
    return tuple(found.values())[-MOST_DISKS:]


def parse_v2(io_stat: bytes) -> tuple[Transfers, ...]:
    """Return the transfers in io.stat. A disk without counters of reads and writes is left out."""
    found = []
    for major, minor, rest in _DISK.findall(io_stat):
        counted = {key: int(value) for key, value in _COUNTER.findall(rest)}
        if counted:
            read_bytes, written_bytes, reads, writes = (
                counted.get(key, 0) for key in (b"rbytes", b"wbytes", b"rios", b"wios")
            )
            moved, requests = {"Read": read_bytes, "Write": written_bytes}, {"Read": reads, "Write": writes}
            found.append(Transfers(int(major), int(minor), moved, requests))
    return tuple(found[-MOST_DISKS:])
