"""ProcessStreams commands in containers whose client has gone, or whose actor was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from actors.runtime.engine.engine import Engine
from actors.runtime.model import processes

DIRECTORY = "exec"
"""Directory below the run directory, with small files for each running command of Exec and ExecSync."""
START_S = 60.0
"""Between the start of a command's process and its pid file, at most; the OCI runtime takes some milliseconds."""
HANG_UP_S = 2.0
"""Between SIGHUP and SIGKILL."""


def end_orphaned_execs(engine: Engine, cgroups: Iterable[str]) -> None:
    """At start: end the commands of the former actor in the background, and remove their files.

    `cgroups` are those of all containers, with an empty one for a container without. A process in none of them, or not
    started just before its file was written, has reused the pid.
    """
    files = list((engine.run / DIRECTORY).glob("*"))
    known = set(cgroups)
    orphans = {}
    for file in files:
        pid = read_pid(file) if file.suffix == ".pid" else 0
        if pid and _began_with(pid, file):
            cgroup = containers_cgroup(processes.cgroup_of(pid), known)
            if cgroup or "" in known:
                orphans[pid] = cgroup if "" not in known else ""

    def work() -> None:
        end(orphans)
        for file in files:
            file.unlink(missing_ok=True)

    if files:
        threading.Thread(target=work, name="orphaned execs", daemon=True).start()


def end(pids: Mapping[int, str]) -> None:
    """End commands, given with their cgroups: SIGHUP to each one's session, SIGKILL after HANG_UP_S."""
    known = {pid: ticks for pid in pids if (ticks := processes.start_ticks(pid))}
    for pid in known:
        for member in processes.session_of(pid, pids[pid]):
            processes.send_signal(member, processes.start_ticks(member), signal.SIGHUP)
    deadline = time.monotonic() + HANG_UP_S
    while any(processes.is_alive(pid, ticks) for pid, ticks in known.items()) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid, ticks in known.items():
        processes.send_signal(pid, ticks, signal.SIGKILL)


def containers_cgroup(cgroup: str, known: Collection[str]) -> str:
    """The one of these cgroups that it is or is below, as a container may make cgroups of its own; empty for none."""
    while cgroup and cgroup not in known:
        cgroup = cgroup.rpartition("/")[0]
    return cgroup


def read_pid(file: Path) -> int:
    """The pid in the OCI runtime's file; 0 before it is written."""
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def _began_with(pid: int, file: Path) -> bool:
    """Return True when the process started shortly before its file was written."""
    ticks = processes.start_ticks(pid)
    if not ticks:
        return False
    written = time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - file.stat().st_mtime)
    return -1.0 < written - int(ticks) / os.sysconf("SC_CLK_TCK") < START_S
