"""A container's state between two commands of the helper, in ROOT/ID/state.json."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from typing import Any


class NoContainer(Exception):
    """No container has this ID, or it does not run."""


def path(root: str, id_: str) -> str:
    """Path of the state file."""
    return f"{root}/{id_}/state.json"


def save(root: str, id_: str, state: Mapping[str, Any]) -> None:
    """Write the state atomically. Raises OSError."""
    os.makedirs(f"{root}/{id_}", mode=0o700, exist_ok=True)
    name = path(root, id_)
    with open(f"{name}.tmp", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.rename(f"{name}.tmp", name)


def load(root: str, id_: str) -> dict[str, Any]:
    """Read the state. Raises NoContainer."""
    try:
        with open(path(root, id_), encoding="utf-8") as file:
            state: dict[str, Any] = json.load(file)
    except (OSError, ValueError) as error:
        raise NoContainer(f"container {id_} does not exist") from error
    return state


def forget(root: str, id_: str) -> None:
    """Remove the state. Idempotent."""
    for name in (f"{path(root, id_)}.tmp", path(root, id_)):
        if os.path.exists(name):
            os.unlink(name)
    if os.path.isdir(f"{root}/{id_}"):
        os.rmdir(f"{root}/{id_}")


def start_time(pid: int) -> str:
    """Start time of a process in clock ticks, also of a zombie; empty when there is none."""
    fields = _stat(f"/proc/{pid}")
    return fields[_START_TIME] if fields else ""


def ticks(pid: int) -> str:
    """Start time of a process in clock ticks; empty for an ended process or a zombie."""
    fields = _stat(f"/proc/{pid}")
    return fields[_START_TIME] if fields and _is_alive(fields) else ""


def ticks_of_child(pid: int, parent: int) -> str:
    """Start time of a process in clock ticks; empty when it has ended, or is no child of `parent`."""
    fields = _stat(f"/proc/{pid}")
    return fields[_START_TIME] if fields and _is_alive(fields) and fields[_PARENT] == str(parent) else ""


def ticks_at(time_s: float) -> float:
    """A Unix time in clock ticks, as start times are. Wrong after a change of the clock."""
    # A stall between the two readings makes the difference too small. So the largest is the best.
    boot = max(time.clock_gettime(time.CLOCK_BOOTTIME) - time.time() for _ in range(_READINGS))
    return (boot + time_s) * os.sysconf("SC_CLK_TCK")


def send_signal(pid: int, ticks: str, number: int) -> None:
    """Signal the process with this pid and start time; do nothing when it has ended. Raises PermissionError."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # The pidfd holds the process, so its start time is enough: a zombie may have threads that run.
        if start_time(pid) == ticks != "":
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


def runs(state: Mapping[str, Any]) -> bool:
    """Return True when the first process runs. An empty start time means that it had ended before it was read."""
    return bool(state["ticks"]) and ticks(state["pid"]) == state["ticks"]


def live_thread(pid: int) -> str:
    """Directory in /proc of a thread that has its namespaces: a thread loses them when it exits, the first one too.

    Raises NoContainer when all have exited.
    """
    try:
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=int)  # the first thread first: others may have their own
    except OSError:
        threads = []
    for thread in threads:
        directory = f"/proc/{pid}/task/{thread}"
        fields = _stat(directory)
        if fields and fields[_STATE] not in _EXITED:
            return directory
    raise NoContainer(f"process {pid} has ended")


def session(leader: int, among: Iterable[int] | None = None) -> dict[int, str]:
    """Processes of the session that `leader` started, with their start times. Searches all processes, or `among`."""
    found = {}
    for pid in among if among is not None else map(int, filter(str.isdigit, os.listdir("/proc"))):
        fields = _stat(f"/proc/{pid}")
        if fields and fields[_SESSION] == str(leader) and _is_alive(fields):
            found[pid] = fields[_START_TIME]
    return found


def session_of(state: Mapping[str, Any]) -> dict[int, str]:
    """Processes of the container's session, with their start times. A process that may be another's is left out.

    The kernel reuses the number of a session once all its processes have ended. So the session is the container's while
    one of them is a witness: the first process, or another that started before the first one's exit.
    """
    found = session(state["pid"])
    ended = _exit_ticks(f"{state['bundle']}/exit")
    witnesses = {pid: ticks for pid, ticks in found.items() if int(ticks) < ended}
    witnesses[state["pid"]] = state["ticks"]
    # Looked at last: a witness that is still there has kept the number since.
    return found if any(start_time(pid) == ticks != "" for pid, ticks in witnesses.items()) else {}


def _exit_ticks(file: str) -> float:
    """The time in the monitor's file, "CODE UNIX_TIME_NS"; 0 without one."""
    try:
        with open(file, encoding="ascii") as exit_file:
            return ticks_at(int(exit_file.read(100).split()[1]) / 1e9)
    except (OSError, ValueError, IndexError):
        return 0.0


_READINGS = 5
"""Pairs of readings of the two clocks: a CPU quota may stop the process between one pair for a tenth of a second."""
_EXITED = ("Z", "X")
_STATE, _PARENT, _SESSION, _THREADS, _START_TIME = 0, 1, 3, 17, 19
"""Indexes in the fields of _stat. proc_pid_stat(5) counts from 1, with two fields before the state."""


def _stat(directory: str) -> list[str]:
    """Fields of a stat file in /proc from the state on; empty when there is no such process or thread."""
    try:
        with open(f"{directory}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _is_alive(fields: list[str]) -> bool:
    # A process whose first thread has exited is shown as a zombie while its other threads run. It counts them and the
    # first; a process that has ended counts one.
    return fields[_STATE] not in _EXITED or int(fields[_THREADS]) > 1
