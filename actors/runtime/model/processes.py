"""Identifies a process by pid and start time, so that a reused pid does no harm; lists and kills cgroup members."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from actors._cgroup.hierarchy import hierarchy
from actors.runtime.helper import cgroups, state

start_ticks = state.ticks
"""Start time of a process in clock ticks; empty for an ended process or a zombie."""
ticks_of_child = state.ticks_of_child
ticks_at = state.ticks_at
send_signal = state.send_signal


class Process(NamedTuple):
    """A process, for which a later one with the same pid is not taken."""

    pid: int
    ticks: str
    """Its start time in clock ticks."""


def is_alive(pid: int, ticks: str) -> bool:
    """Return True when the process with this pid and start time runs."""
    return pid > 0 and start_ticks(pid) == ticks != ""


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


def session_of(leader: Process, cgroup: str) -> list[Process]:
    """The processes of the session that `leader` leads; it alone when it leads none. Empty when it has ended.

    Searches its cgroup, or all processes where `cgroup` is empty.
    """
    found = state.session(leader.pid, _members(cgroup) if cgroup else None)
    # Looked at last: while the leader lives, no other session has its number.
    return [Process(*one) for one in sorted({**found, leader.pid: leader.ticks}.items())] if is_alive(*leader) else []


def _members(cgroup: str) -> set[int]:
    found: set[int] = set()
    for path in hierarchy().paths(cgroup):
        found.update(cgroups.pids(path))
    return found


def kill_cgroup(name: str) -> None:
    """SIGKILL every member: a container in a shared pid namespace may leave processes, also in cgroups of its own."""
    for path in hierarchy().paths(name):
        cgroups.kill_in(path)
