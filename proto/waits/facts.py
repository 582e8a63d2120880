"""Collects the facts for `walk` without asking an actor: tables of waits, process states, the supervisor's rows."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from proto.common.machine import procfs
from proto.waits.record import Wait
from proto.waits.table import Table, read_all

MAX_STACK = 4000


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """A process or thread, from /proc."""

    state: str
    """R, S, D, T, t, Z, as in proc(5); empty when it is gone."""
    title: str = ""
    wchan: str = ""
    stack: str = ""
    """The kernel's stack, where this user may read it."""


class ActorState(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's view of an actor."""

    state: str
    pid: int = 0
    restart_in_s: float = 0.0
    last_death: str = ""
    held: bool = False
    """An operator has stopped it: it stays so until an operator starts it."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The container runtime's socket."""

    endpoint: str = ""
    pid: int = 0
    """The process that listens; 0 when unknown."""
    problem: str = ""
    """Why it cannot be connected to."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All at one time."""

    now: float
    """CLOCK_MONOTONIC seconds."""
    tables: dict[str, Table]
    processes: dict[int, ProcessState] = {}
    """By pid or thread ID."""
    actors: dict[str, ActorState] = {}
    """Empty when the supervisor did not answer."""
    runtime: Runtime = Runtime()
    agent_gone: str = ""
    """Why no agent runs; empty while one runs."""

    def waits(self) -> Iterable[tuple[str, Wait]]:
        """Each wait with the actor that records it.

        The waits of a stopped actor ended with its process. Its table still has the handler in which it ended. So has
        the table of a former incarnation, when the present one could not make its own.
        """
        return ((name, wait) for name, table in self.tables.items() if not self._is_over(table) for wait in table.waits)

    def _is_over(self, table: Table) -> bool:
        row = self.actors.get(table.name)
        return row is not None and (row.state == "stopped" or row.pid not in (0, table.pid))


def states(rows: Iterable[Any]) -> dict[str, ActorState]:
    """The supervisor's view of the actors, from its rows (proto.agent.supervisor.ActorRow)."""
    return {
        row.name: ActorState(
            state=row.state,
            pid=row.pid,
            restart_in_s=row.restart_in_s,
            last_death=row.last_death,
            held=row.held,
        )
        for row in rows
        if row.name not in ("supervisor", "forkserver")
    }


def collect(
    run_dir: Path, actors: dict[str, ActorState] | None = None, endpoint: str = "", agent_gone: str = ""
) -> Facts:
    """Read the facts. Takes some milliseconds, and never waits for an actor or the runtime."""
    tables = read_all(run_dir)
    runtime = look_at(endpoint) if endpoint else Runtime()
    known = actors or {}
    wanted = {table.pid for table in tables.values()} | {row.pid for row in known.values()} | {runtime.pid}
    wanted |= {_pid(wait.target) for table in tables.values() for wait in table.waits}
    processes = {pid: process_state(pid) for pid in wanted if pid > 0}
    for table in tables.values():
        if procfs.start_time(table.pid) != table.start_time:
            processes[table.pid] = ProcessState(state="")  # the pid is another process's, or gone
    return Facts(
        now=time.monotonic(),
        tables=tables,
        processes=processes,
        actors=known,
        runtime=runtime,
        agent_gone=agent_gone,
    )


def _pid(target: str) -> int:
    kind, _, number = target.partition("/")
    return int(number) if kind in ("helper", "thread") and number.isdecimal() else 0


def process_state(pid: int) -> ProcessState:
    """The state of a process or thread; its kernel stack if it sleeps uninterruptibly or is stopped."""
    base = f"/proc/{pid}"
    fields = _read(f"{base}/stat").rpartition(")")[2].split()
    if not fields:
        return ProcessState(state="")
    state = fields[0]
    if state not in ("D", "T", "t"):
        return ProcessState(state=state, title=procfs.title(pid)[:200])
    return ProcessState(
        state=state,
        title=procfs.title(pid)[:200],
        wchan=_read(f"{base}/wchan").strip(),
        stack=_read(f"{base}/stack")[:MAX_STACK].rstrip(),
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def look_at(endpoint: str) -> Runtime:
    """Connect to the runtime's socket without waiting, and read which process listens (SO_PEERCRED, unix(7))."""
    path = endpoint.removeprefix("unix://")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as one:
        try:
            one.connect(path)
        except BlockingIOError:
            return Runtime(endpoint=endpoint, problem="its queue of connections is full: it accepts none")
        except OSError as error:
            return Runtime(endpoint=endpoint, problem=os.strerror(error.errno or 0))
        pid = 0
        with suppress(OSError):
            pid = struct.unpack("iII", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return Runtime(endpoint=endpoint, pid=pid)
