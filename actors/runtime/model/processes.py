"""Processes told by pid and start time together, so that none is ever taken for another; and those of a cgroup."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from actors._cgroup.hierarchy import hierarchy


def start_ticks(pid: int) -> str:
    """Field 22 of /proc/PID/stat; empty when the process is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def is_alive(pid: int, ticks: str) -> bool:
    """Whether that very process runs."""
    return pid > 0 and start_ticks(pid) == ticks != ""


def send_signal(pid: int, ticks: str, number: int) -> None:
    """To that very process; nothing happens when it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if is_alive(pid, ticks):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


def cgroup_of(pid: int) -> str:
    """The name of its cgroup, by the controller for memory where there are several; empty when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "" if hierarchy().unified else "memory" in controllers.split(","):
            return name
    return ""


def session_of(pid: int, cgroup: str) -> list[int]:
    """The processes of the session that `pid` leads, in its cgroup, or on the machine where it has none; itself alone
    when it leads no session."""
    try:
        if os.getsid(pid) != pid:
            return [pid]
    except ProcessLookupError:
        return []
    found = {pid}
    for other in _members(cgroup) if cgroup else _all():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(other) == pid:
                found.add(other)
    return sorted(found)


def _members(cgroup: str) -> set[int]:
    found: set[int] = set()
    for path in hierarchy().paths(cgroup):
        with contextlib.suppress(OSError):
            found.update(map(int, Path(path, "cgroup.procs").read_text().split()))
    return found


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def kill_cgroup(name: str) -> None:
    """SIGKILL to all in it: what a container left that shares its processes' namespace with others."""
    for path in hierarchy().paths(name):
        with contextlib.suppress(OSError):
            for pid in Path(path, "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def oom_kills(name: str) -> int:
    """How many processes of the cgroup the kernel has killed for its limit."""
    tree = hierarchy()
    directory = tree.path("memory", name)
    if directory is None:
        return 0
    file = "memory.events" if tree.unified else "memory.oom_control"
    with contextlib.suppress(OSError):
        for line in Path(directory, file).read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
    return 0
