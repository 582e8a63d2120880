"""`supervisor top actors`: CPU, memory, mailbox and messages a second of each process, live.

All figures are in the actors' answers and the supervisor's list, so that a remote console has them, too.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

import click

from proto.agent.actor import Describe
from proto.agent.supervisor import ActorRow, ListActors
from proto.wire.errors import ActorError
from supervisor.cli.common import connect
from supervisor.cli.views import render
from supervisor.cli.views.render import Cell
from supervisor.sockets.client import Client

HEADERS = ("ACTOR", "STATE", "CPU", "MEMORY", "MAILBOX", "MESSAGES/S", "BUSY", "SLOWEST")
RIGHT = frozenset({"CPU", "MEMORY", "MAILBOX", "MESSAGES/S", "BUSY"})
INTERVAL_S = 1.0
ANSWER_S = 0.5
"""An actor that does not answer by then is shown without its figures."""


class Reading(NamedTuple):
    """One process at one time."""

    row: ActorRow
    at: float
    """Monotonic."""
    mailbox: int | None = None
    """None: it did not answer."""
    handled: dict[str, tuple[int, float]] = {}
    """Count and milliseconds by message type."""


class Line(NamedTuple):
    """One process between two readings."""

    name: str
    state: str
    cpu: float | None
    """Share of a core."""
    memory_kib: int
    mailbox: int | None
    rate: float | None
    """Messages a second."""
    busy: float | None
    """Share of the time in handlers."""
    slowest: str
    """The type that took most of that time."""


def top_actors(run_dir: str, by: Literal["name", "cpu", "memory"], output: str | None, times: int | None) -> None:
    """Print a table of all processes, `times` times; None: until Ctrl-C."""
    with connect(run_dir) as client:
        for lines in itertools.islice(measure(client), times):
            shown = ordered(lines, by)
            if output == "json":
                render.echo((render.json_text if times == 1 else render.json_line)([one._asdict() for one in shown]))
                continue
            if times != 1 and render.is_terminal():
                click.clear()
            render.table(HEADERS, [_cells(one) for one in shown], RIGHT)


def measure(client: Client) -> Iterator[list[Line]]:
    """The lines of each interval."""
    before = read(client)
    while True:
        time.sleep(INTERVAL_S)
        now = read(client)
        yield [line(before.get(name), reading) for name, reading in now.items()]
        before = now


def read(client: Client) -> dict[str, Reading]:
    """A reading of every process."""
    found = {}
    for row in client.ask("supervisor", ListActors(with_cpu=True)).rows:
        reading = Reading(row, time.monotonic())
        if row.state == "ready" and row.name not in ("supervisor", "forkserver"):
            try:
                answer = client.ask(row.name, Describe(), ANSWER_S)
            except ActorError:
                found[row.name] = reading
                continue
            handled = {one.type: (one.handled, one.total_ms) for one in answer.messages}
            reading = reading._replace(at=time.monotonic(), mailbox=answer.mailbox, handled=handled)
        found[row.name] = reading
    return found


def line(before: Reading | None, now: Reading) -> Line:
    """The difference of two readings of one incarnation; without rates when there is none."""
    row = now.row
    same = before is not None and before.row.incarnation == row.incarnation and before.row.pid == row.pid
    if before is None or not same or now.at <= before.at:
        return Line(row.name, row.state, None, row.pss_kib, now.mailbox, None, None, "")
    seconds = now.at - before.at
    changes = {
        kind: (count - before.handled.get(kind, (0, 0.0))[0], took - before.handled.get(kind, (0, 0.0))[1])
        for kind, (count, took) in now.handled.items()
        if kind != "Describe"  # this command's own
    }
    cpu = max(0.0, row.cpu_s - before.row.cpu_s) / seconds
    if now.mailbox is None:
        return Line(row.name, row.state, cpu, row.pss_kib, None, None, None, "")
    count = sum(one for one, _ in changes.values())
    took_ms = sum(took for _, took in changes.values())
    slowest = max(changes, key=lambda kind: changes[kind][1], default="")
    return Line(row.name, row.state, cpu, row.pss_kib, now.mailbox, count / seconds, took_ms / 1000 / seconds, slowest)


def ordered(lines: list[Line], by: Literal["name", "cpu", "memory"]) -> list[Line]:
    """The lines in start order, or by usage with the largest first."""
    if by == "cpu":
        return sorted(lines, key=lambda one: -(one.cpu or 0.0))
    return sorted(lines, key=lambda one: -one.memory_kib) if by == "memory" else lines


def _cells(one: Line) -> list[str]:
    return [
        one.name,
        Cell(one.state, "" if one.state == "ready" else "yellow"),
        "" if one.cpu is None else f"{100 * one.cpu:.1f}%",
        render.mib(one.memory_kib),
        "" if one.mailbox is None else str(one.mailbox),
        "" if one.rate is None else f"{one.rate:.1f}",
        "" if one.busy is None else f"{100 * one.busy:.1f}%",
        one.slowest,
    ]
