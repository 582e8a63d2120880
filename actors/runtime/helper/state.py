"""A container's state between two commands of the helper, in ROOT/ID/state.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
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


def session(leader: int) -> list[int]:
    """Processes of the session that `leader` started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(f"/proc/{name}")
            if fields and fields[_SESSION] == str(leader) and _is_alive(fields):
                found.append(int(name))
    return found


_EXITED = ("Z", "X")
_STATE, _SESSION, _THREADS, _START_TIME = 0, 3, 17, 19
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
