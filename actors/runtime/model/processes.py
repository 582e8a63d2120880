"""Identifies a process by pid and start time, so that a reused pid does no harm; lists and kills cgroup members."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from actors._cgroup.hierarchy import hierarchy
from actors.runtime.helper import cgroups, state

start_ticks = state.ticks
"""Start time of a process in clock ticks; empty for an ended process or a zombie."""


def is_alive(pid: int, ticks: str) -> bool:
    """Return True when the process with this pid and start time runs."""
    return pid > 0 and start_ticks(pid) == ticks != ""


def send_signal(pid: int, ticks: str, number: int) -> None:
    """Signal the process with this pid and start time; do nothing when it has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # The pidfd holds the process, so its start time is enough: a zombie may have threads that run.
        if state.start_time(pid) == ticks != "":
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


def cgroup_of(pid: int) -> str:
    """The process's cgroup, of the memory controller where v1 has several; empty when the process has ended."""
    try:
        lines = os.fsdecode(Path(f"/proc/{pid}/cgroup").read_bytes()).split("\n")
    except OSError:
        return ""
    for line in filter(None, lines):
        _, controllers, name = line.split(":", 2)
        if controllers == "" if hierarchy().unified else "memory" in controllers.split(","):
            return name
    return ""


def session_of(pid: int, cgroup: str) -> list[int]:
    """The processes of the session that `pid` leads; `pid` alone when it leads none.

    Searches its cgroup, or all processes where `cgroup` is empty.
    """
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
        found.update(cgroups.pids(path))
    return found


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def kill_cgroup(name: str) -> None:
    """SIGKILL every member: a container in a shared pid namespace may leave processes, also in cgroups of its own."""
    for path in hierarchy().paths(name):
        cgroups.kill_in(path)
