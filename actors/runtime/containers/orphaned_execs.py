"""Ends commands of Exec and ExecSync in containers, after their client has gone or the runtime actor was killed."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from actors.runtime.engine.engine import Engine
from actors.runtime.model import processes
from actors.runtime.model.processes import Process

DIRECTORY = "exec"
"""Directory below the run directory, with small files for each running command of Exec and ExecSync."""
START_S = 60.0
"""Between the start of a command's process and its pid file, at most; the OCI runtime takes some milliseconds."""
CLOCK_S = 0.1
"""Both times are rounded, to 10 ms at most. The kernel takes longer to give all other pids before it reuses one."""
HANG_UP_S = 2.0
"""Between SIGHUP and SIGKILL."""
log = logging.getLogger(__name__)


def end_orphaned_execs(engine: Engine, cgroups: Iterable[str]) -> None:
    """At start: end the commands of the former actor in the background, and remove their files.

    `cgroups` are those of all containers, with an empty one for a container without. A process in none of them, or not
    started just before its file was written, has reused the pid.
    """
    files = list((engine.run / DIRECTORY).glob("*"))
    known = set(cgroups)
    orphans: dict[Process, str] = {}
    for file in files:
        # A kill of the helper leaves a pid file without its final name.
        pid = read_pid(file) if file.name.endswith((".pid", ".pid.tmp")) else 0
        process = began_with(pid, file) if pid else None
        if process is not None:
            cgroup = containers_cgroup(processes.cgroup_of(pid), known)
            if cgroup or "" in known:
                orphans[process] = cgroup if "" not in known else ""

    def work() -> None:
        try:
            end(orphans)
            for file in files:
                file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot end the commands of the former runtime: %s; the next start tries again", error)

    if files:
        threading.Thread(target=work, name="orphaned execs", daemon=True).start()


def end(commands: Mapping[Process, str]) -> None:
    """End commands, given with their cgroups: SIGHUP to each one's session, SIGKILL after HANG_UP_S."""
    for command, cgroup in commands.items():
        for member in processes.session_of(command, cgroup):
            processes.send_signal(*member, signal.SIGHUP)
    deadline = time.monotonic() + HANG_UP_S
    while any(processes.is_alive(*command) for command in commands) and time.monotonic() < deadline:
        time.sleep(0.02)
    for command in commands:
        processes.send_signal(*command, signal.SIGKILL)


def containers_cgroup(cgroup: str, known: Collection[str]) -> str:
    """The cgroup of `known` that is `cgroup` or above it; empty for none. A container may make cgroups of its own."""
    while cgroup and cgroup not in known:
        cgroup = cgroup.rpartition("/")[0]
    return cgroup


def read_pid(file: Path) -> int:
    """The pid in the OCI runtime's file; 0 before it is written."""
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def began_with(pid: int, file: Path) -> Process | None:
    """The process, when it started shortly before its file was written; None for a later one with its pid."""
    ticks = processes.start_ticks(pid)
    try:
        age = processes.ticks_at(file.stat().st_mtime) - int(ticks)
    except (OSError, ValueError):
        return None
    second = os.sysconf("SC_CLK_TCK")
    return Process(pid, ticks) if -CLOCK_S * second < age < START_S * second else None
