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


def ticks(pid: int) -> str:
    """Start time of a process in clock ticks, field 22 of /proc/PID/stat; empty for an ended process or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def runs(state: Mapping[str, Any]) -> bool:
    """Return True when the first process runs. An empty start time means that it had ended before it was read."""
    return bool(state["ticks"]) and ticks(state["pid"]) == state["ticks"]


def session(leader: int) -> list[int]:
    """Processes of the session that `leader` started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[3] == str(leader) and fields[0] not in ("Z", "X"):
                found.append(int(name))
    return found
