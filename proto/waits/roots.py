"""The root cause that the last wait of a chain is: a code, and how much it explains. Pure."""

from __future__ import annotations

from typing import NamedTuple

from proto.waits.facts import ActorState, Facts, ProcessState
from proto.waits.record import RUNNING, Wait

LONG_S = 1.0
"""A call or handler of this age explains a wait. A younger one is work under way."""


class Root(NamedTuple):
    """The kind of a root cause. A higher severity explains more."""

    code: str
    severity: int
    detail: str = ""


class Problem(NamedTuple):
    """An actor that cannot do its work. `running`: the handler that does not return."""

    root: Root
    since: float = 0.0
    running: Wait | None = None


_SEVERITIES = {"object": 85, "admission": 80, "hook": 73, "queue": 50, "lock": 50, "timer": 25, "handler": 11}
_OVERDUE_HOOK = 60
"""Of a command past its deadline. The call of the runtime, which should have ended it, explains more."""
_YOUNG_AND_OLD = {"http": (15, 70), "ask": (10, 55)}
"""Severities by age: a young call is usual work."""


def actor_problem(facts: Facts, name: str) -> Problem | None:
    """Why an actor does not answer now; None when no problem is known."""
    row, table = facts.actors.get(name), facts.tables.get(name)
    if row is not None and row.state not in ("ready", "starting", "stopping"):
        return Problem(_out_of_service(row))
    pid = row.pid if row is not None and row.pid else table.pid if table is not None else 0
    process = facts.processes.get(pid)
    if process is None:
        return None
    running = next((wait for wait in table.waits if wait.target == RUNNING), None) if table is not None else None
    problem = _of_actor(pid, process, facts.now, running)
    if problem is None and row is not None and row.state == "starting":
        return Problem(Root("actor-gone", 64, "starting"))
    return problem


def _out_of_service(row: ActorState) -> Root:
    """Only an actor in back-off starts again by itself."""
    if row.held and row.state == "stopped":
        return Root("actor-held", 99)
    when = f", next start in {row.restart_in_s:.1f} s" if row.state in ("backoff", "degraded") else ""
    return Root("actor-gone", 99, f"{row.state}{when}; last end: {row.last_death or 'none'}")


def _of_actor(pid: int, process: ProcessState, now: float, running: Wait | None) -> Problem | None:
    """Why a process does not serve. `running`: the handler that runs."""
    if process.state in ("", "Z"):
        return Problem(Root("actor-gone", 98, f"process {pid} has ended"))
    if process.state in "Tt":
        return Problem(Root("actor-stopped", 100, _state(pid, process)))
    if running is None or now - running.since <= LONG_S:
        return None
    if process.state == "D":
        return Problem(Root("actor-sleeps", 99, _state(pid, process)), running.since)
    return Problem(Root("actor-busy", 90, _state(pid, process)), running.since, running)


def root_of(facts: Facts, actor: str, wait: Wait) -> Root:
    """The root cause that this wait is, when it waits for nothing further."""
    old = facts.now - wait.since > LONG_S
    if wait.target == RUNNING:
        problem = actor_problem(facts, actor)
        return problem.root if problem is not None else Root("actor-busy", 12)
    if wait.kind == "cri":
        return _of_runtime(facts, old)
    if wait.kind in ("helper", "blocking"):
        return _of_process(facts, wait, "helper" if wait.kind == "helper" else "thread", old)
    if wait.kind in ("condition", "retry"):
        with_error = 75 if wait.kind == "condition" else 66
        return Root(wait.kind, with_error if wait.error else 20)
    if wait.kind in _YOUNG_AND_OLD:
        return Root(wait.kind, _YOUNG_AND_OLD[wait.kind][old])
    overdue = wait.kind == "hook" and 0 < wait.deadline < facts.now - LONG_S
    return Root(wait.kind, _OVERDUE_HOOK if overdue else _SEVERITIES[wait.kind])


def _of_runtime(facts: Facts, old: bool) -> Root:
    runtime = facts.runtime
    process = facts.processes.get(runtime.pid)
    if runtime.problem:
        return Root("runtime-down", 96, f"{runtime.endpoint}: {runtime.problem}")
    if process is not None and process.state in ("T", "t", "D") and runtime.pid:
        return Root("runtime-stopped", 96, _state(runtime.pid, process))
    return Root("cri", 70 if old else 15)


def _of_process(facts: Facts, wait: Wait, kind: str, old: bool) -> Root:
    number = wait.target.partition("/")[2]
    process = facts.processes.get(int(number)) if number.isdecimal() else None
    code = "helper" if kind == "helper" else "blocking"
    if process is not None and process.state == "D":
        return Root(f"{kind}-sleeps", 95 if old else 30, _state(int(number), process))
    if process is not None and process.state in ("T", "t"):
        return Root("helper-stopped" if kind == "helper" else "actor-stopped", 95, _state(int(number), process))
    return Root(code, (72 if kind == "helper" else 58) if old else 14)


def _state(pid: int, process: ProcessState) -> str:
    text = f"process {pid} {process.title or '?'} is in state {process.state}"
    text += f", waits in {process.wchan}" if process.wchan and process.wchan != "0" else ""
    return f"{text}\n{process.stack}" if process.stack else text
