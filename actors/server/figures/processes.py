"""Reads CPU, memory and descriptors of the agent's processes from /proc. Takes milliseconds each: for a thread."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from proto.common.machine import procfs

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """The usage of one process."""

    cpu_s: float = 0.0
    pss_bytes: int = 0
    virtual_bytes: int = 0
    open_fds: int = 0
    started_ticks: int = 0
    """Start time in clock ticks after boot; with the pid it identifies a process."""


def use_of(pids: Iterable[int]) -> dict[int, ProcessUse]:
    """The usage by pid. Processes that have ended are left out."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            found[pid] = _use(pid)
    return found


def _use(pid: int) -> ProcessUse:
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return ProcessUse(
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
        pss_bytes=procfs.pss_kib(pid) * 1024,
        virtual_bytes=int(fields[20]),
        open_fds=len(os.listdir(f"/proc/{pid}/fd")),
        started_ticks=int(fields[19]),
    )


def start_time(started_ticks: int) -> float:
    """Unix time of a process's start."""
    return procfs.boot_time() + started_ticks / _TICKS


def limits() -> tuple[int, int]:
    """The limits of (file descriptors, bytes of address space) of this process; -1 for none."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0], resource.getrlimit(resource.RLIMIT_AS)[0]


def host_traffic() -> tuple[int, int]:
    """Bytes (received, sent) by IP in this network namespace; 0 where the kernel does not count them."""
    with contextlib.suppress(OSError):
        lines = [line.split() for line in Path("/proc/self/net/netstat").read_text().splitlines()]
        for names, values in zip(lines[::2], lines[1::2], strict=False):
            if names[0] == "IpExt:":
                found = dict(zip(names[1:], values[1:], strict=True))
                return int(found.get("InOctets", 0)), int(found.get("OutOctets", 0))
    return 0, 0
