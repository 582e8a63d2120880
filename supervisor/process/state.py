"""Saves incarnations and pids of the children in RUN_DIR/state.json for the next supervisor.

Incarnations always increase, also across supervisors, so that a message of a dead one is never taken for a living
one's. Processes that a killed supervisor left are found by pid and start time. They are killed before new ones bind
sockets.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from pathlib import Path

import msgspec

from proto.common import untrusted
from proto.common.machine import procfs

log = logging.getLogger(__name__)

END_WAIT_S = 2.0
MOST_BYTES = 4 << 20
"""Largest file that is read: a thousand times a usual one."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One process. `start_time` is that of procfs.start_time; pid 0 means no process."""

    incarnation: int = 0
    pid: int = 0
    start_time: int = 0


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content: actors, supervisor and forkserver by name."""

    version: int = 1
    actors: dict[str, Entry] = {}


def load(path: Path) -> Saved:
    """Load the file; empty if there is none.

    What cannot be read is renamed to `.bad`, or to a new name that ends so. Incarnations then continue from the present
    time in seconds, which is above every earlier number.
    """
    try:
        return untrusted.decode_json(untrusted.read_file(path, MOST_BYTES), Saved)
    except FileNotFoundError:
        return Saved()
    except (OSError, msgspec.DecodeError) as error:
        log.error("cannot read %s: %s; %s, incarnations go on from the time of day", path, error, _rename_bad(path))
        return Saved(actors={"*": Entry(incarnation=int(time.time()))})


def _rename_bad(path: Path) -> str:
    """Rename the file. Returns what was done, for the log."""
    problem = ""
    # A file takes no directory's name, nor a directory a file's.
    for bad in (path.with_suffix(".bad"), path.with_name(f"{path.stem}-{time.time_ns()}.bad")):
        try:
            path.replace(bad)
        except OSError as error:
            problem = f"cannot rename it: {error.strerror}; remove it"
        else:
            return f"renamed it to {bad.name}"
    return problem


def incarnations(saved: Saved) -> dict[str, int]:
    """The highest incarnation of each name."""
    return {name: entry.incarnation for name, entry in saved.actors.items()}


def floor(saved: Saved) -> int:
    """The lower bound of all incarnations, set after a damaged file."""
    return saved.actors.get("*", Entry()).incarnation


def save(path: Path, saved: Saved) -> None:
    """Replace the file atomically. It is not synced: after a crash of the machine no process is left."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(saved))
    temporary.replace(path)


def end_leftovers(saved: Saved) -> list[str]:
    """Kill the processes that a former supervisor left, and wait for their end. Returns their names."""
    running: dict[int, str] = {}
    for name, entry in saved.actors.items():
        fd = _open_leftover(name, entry)
        if fd >= 0:
            running[fd] = name
    deadline = time.monotonic() + END_WAIT_S
    poller = select.poll()
    for fd in running:
        poller.register(fd, select.POLLIN)
    ended: list[str] = []
    while running and (left_s := deadline - time.monotonic()) > 0:
        for fd, _ in poller.poll(left_s * 1000):
            poller.unregister(fd)
            os.close(fd)
            ended.append(running.pop(fd))
    for fd, name in running.items():
        os.close(fd)
        log.error(
            "cannot end the former %s (pid %d): SIGKILL did not end it; going on beside it",
            name,
            saved.actors[name].pid,
        )
    return ended


def _open_leftover(name: str, entry: Entry) -> int:
    """Kill the process and return a pidfd of it; -1 if it has ended or the pid is another process's."""
    if not entry.pid or procfs.start_time(entry.pid) != entry.start_time or not entry.start_time:
        return -1
    try:
        fd = os.pidfd_open(entry.pid)
    except OSError:
        return -1
    # Checked again, because the pid may have been reused before the pidfd was open.
    if procfs.start_time(entry.pid) != entry.start_time or not procfs.title(entry.pid).startswith("supervisor: "):
        os.close(fd)
        return -1
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError as error:
        log.error("cannot kill the former %s (pid %d): %s", name, entry.pid, error)
    return fd
