"""Commands in containers that nobody waits for any more: their client is gone, or the actor that ran them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from actors.runtime.model import processes
from actors.runtime.service.engine import Engine

DIRECTORY = "exec"
"""Of the run directory: a few small files for each command that runs, of ExecSync, too."""
START_S = 60.0
"""From a command's process to its pid file, at most; the OCI runtime takes some milliseconds."""
HANG_UP_S = 2.0
"""From SIGHUP to SIGKILL."""


def end_strays(engine: Engine, cgroups: Iterable[str]) -> None:
    """At start: end the commands that the former actor ran, of ExecSync, too, and forget their files, in a while.

    `cgroups` are the containers', empty for one without. A process in none of them, or not begun when its file was
    written, is another by now.
    """
    files = list((engine.run / DIRECTORY).glob("*"))
    known = set(cgroups)
    strays = {}
    for file in files:
        pid = read_pid(file) if file.suffix == ".pid" else 0
        if pid and _began_with(pid, file) and ("" in known or processes.cgroup_of(pid) in known):
            strays[pid] = processes.cgroup_of(pid) if "" not in known else ""

    def work() -> None:
        end(strays)
        for file in files:
            file.unlink(missing_ok=True)

    if files:
        threading.Thread(target=work, name="strays", daemon=True).start()


def end(pids: Mapping[int, str]) -> None:
    """Commands, and the cgroups they are in: SIGHUP to all of each one's session, SIGKILL to those that stay."""
    known = {pid: ticks for pid in pids if (ticks := processes.start_ticks(pid))}
    for pid in known:
        for member in processes.session_of(pid, pids[pid]):
            processes.send_signal(member, processes.start_ticks(member), signal.SIGHUP)
    deadline = time.monotonic() + HANG_UP_S
    while any(processes.is_alive(pid, ticks) for pid, ticks in known.items()) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid, ticks in known.items():
        processes.send_signal(pid, ticks, signal.SIGKILL)


def read_pid(file: Path) -> int:
    """What the OCI runtime wrote there; 0 before it has."""
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def _began_with(pid: int, file: Path) -> bool:
    """Whether it is there and began shortly before its file was written."""
    ticks = processes.start_ticks(pid)
    if not ticks:
        return False
    written = time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - file.stat().st_mtime)
    return -1.0 < written - int(ticks) / os.sysconf("SC_CLK_TCK") < START_S
