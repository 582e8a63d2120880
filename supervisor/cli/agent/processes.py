"""Commands for the agent's processes: ps, restart, stop, describe, verbosity."""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import Any

import click

from proto.agent.actor import Describe, Description, SetVerbosity
from proto.agent.supervisor import ActorRow, RestartActor, StopAgent
from proto.common.logs import MOST_VERBOSITY
from proto.pods.pod_columns import human_duration
from proto.wire.errors import ActorDead
from supervisor.cli.actors.seconds import TIMEOUT
from supervisor.cli.actors.service import stop_actor
from supervisor.cli.common import complete_actor, complete_pod, connect, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.pods.described_pod import describe_pod
from supervisor.cli.views import render
from supervisor.cli.views.render import Cell
from supervisor.sockets.client import CannotReach, Client

PS_HEADERS = ("ACTOR", "PID", "STATE", "INCARNATION", "UPTIME", "RESTARTS", "MAILBOX", "PSS", "LAST DEATH")
PS_RIGHT = frozenset({"PID", "INCARNATION", "UPTIME", "RESTARTS", "MAILBOX", "PSS"})
POD_KINDS = ("pod", "pods", "po")
STATE_STYLES = {
    "ready": "green",
    "starting": "yellow",
    "stopping": "yellow",
    "backoff": "yellow",
    "degraded": "bold red",
    "lost": "bold red",
    "stopped": "dim",
}


def _complete_process(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Actors, and the supervisor."""
    return [name for name in ["supervisor"] if name.startswith(incomplete)] + complete_actor(ctx, param, incomplete)


def complete_described(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names for the first argument of `describe`."""
    return [*complete_actor(ctx, param, incomplete), *(["pod"] if "pod".startswith(incomplete) else [])]


@click.command()
@run_dir_option
@output_option("json")
def ps(run_dir: str, output: str | None) -> None:
    r"""Show the agent's processes: the supervisor, and one per actor.

    \b
    Example: supervisor ps -o json
    """
    with connect(run_dir) as client:
        rows = client.actors()
    if output == "json":
        render.echo(render.json_text([render.fields(row) for row in rows]))
        return
    render.table(PS_HEADERS, ps_rows(rows, drawn=render.is_terminal()), PS_RIGHT)


def ps_rows(rows: tuple[ActorRow, ...], *, drawn: bool) -> list[list[str]]:
    """The rows of the process tree, with box characters when `drawn`, else indented."""
    return [_ps_row(row, _branch(index, len(rows), drawn) + row.name) for index, row in enumerate(rows)]


def _branch(index: int, count: int, drawn: bool) -> str:
    """The prefix of a name. The rows are the supervisor, the forkserver below it, and the actors below that."""
    if index < 2:
        return ("└─ " if drawn else "  ") * index
    if not drawn:
        return "    "
    return "   └─ " if index == count - 1 else "   ├─ "


def _ps_row(row: ActorRow, name: str) -> list[str]:
    state = f"{row.state} {row.restart_in_s:.1f}s" if row.restart_in_s else row.state
    if row.degraded and row.state != "degraded":
        state += ", degraded"
    state += " (on request)" if row.held and row.state == "stopped" else ""
    return [
        name,
        str(row.pid) if row.pid else "",
        Cell(state, "bold yellow" if row.held else STATE_STYLES["degraded" if row.degraded else row.state]),
        str(row.incarnation),
        human_duration(row.uptime_s) if row.uptime_s else "",
        Cell(str(row.restarts), "yellow" if row.restarts else ""),
        str(row.mailbox),
        render.mib(row.pss_kib),
        row.last_death,
    ]


@click.command()
@click.argument("actor", shell_complete=complete_actor)
@run_dir_option
@output_option("json")
@click.option("--timeout", type=TIMEOUT, default=60.0, show_default=True, help="Seconds to wait for the new process.")
def restart(actor: str, run_dir: str, output: str | None, timeout: float) -> None:
    r"""End ACTOR and start its next incarnation. Pods continue to run.

    \b
    Example: supervisor restart probe
    """
    with connect(run_dir) as client:
        before = next((row for row in client.actors() if row.name == actor), None)
        if before is None:
            names = ", ".join(row.name for row in client.actors()[2:])
            raise CommandError(f"cannot restart {actor}: no such actor; there are {names}")
        began = time.monotonic()
        after = client.ask("supervisor", RestartActor(name=actor), timeout)
        took_ms = (time.monotonic() - began) * 1000
    if output == "json":
        found: dict[str, Any] = render.fields(after)
        found |= {"previous": render.fields(before), "took_ms": round(took_ms, 1)}
        render.echo(render.json_text(found))
        return
    render.echo(
        f"{actor}: pid {before.pid or 'none'} -> {after.pid}, incarnation {before.incarnation} -> {after.incarnation}, "
        f"{after.state} in {took_ms:.0f} ms"
    )


@click.command()
@click.argument("actor", required=False, shell_complete=complete_actor)
@run_dir_option
@output_option("json")
@click.option("--timeout", type=TIMEOUT, default=60.0, show_default=True, help="Seconds to wait for its end.")
def stop(actor: str | None, run_dir: str, output: str | None, timeout: float) -> None:
    r"""End the agent and wait until it has ended, or with ACTOR end one actor and keep it stopped. Pods go on running.

    A stopped actor starts again with `start ACTOR`, `restart ACTOR` or the next start of the agent.

    \b
    Example: supervisor stop image_gc
    """
    if actor is not None:
        stop_actor(actor, run_dir, output, timeout)
        return
    deadline = time.monotonic() + timeout
    with connect(run_dir) as client:
        pid = next((row.pid for row in client.actors() if row.name == "supervisor"), 0)
        try:
            pidfd = os.pidfd_open(pid) if pid else None
        except OSError:
            pidfd = None  # another pid namespace, or already ended: the socket decides then
        with contextlib.suppress(ActorDead, CannotReach):  # it has ended, as requested
            client.ask("supervisor", StopAgent(), timeout)
        _wait_gone(client, pidfd, deadline)
    if output == "json":
        render.echo(render.json_text({"pid": pid, "state": "stopped"}))
    else:
        render.echo("the agent has ended; its pods go on running")


def _wait_gone(client: Client, pidfd: int | None, deadline: float) -> None:
    if pidfd is not None:
        try:
            gone, _, _ = select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(pidfd)
        if gone:
            return
    while client.alive():
        if time.monotonic() >= deadline:
            raise CommandError("cannot stop the agent in time: it still runs; see `supervisor ps`")
        time.sleep(0.02)


@click.command()
@click.argument("actor", shell_complete=_complete_process)
@click.argument("level", metavar="N", type=click.IntRange(0, MOST_VERBOSITY))
@run_dir_option
def verbosity(actor: str, level: int, run_dir: str) -> None:
    r"""Change how much ACTOR or the supervisor logs.

    N is 0 for key facts, 2 by default, 4 for debugging, 6 for every message. After a restart, the actor has the
    configured verbosity again.

    \b
    Example: supervisor verbosity pleg 4
    """
    with connect(run_dir) as client:
        client.ask(actor, SetVerbosity(v=level))


@click.command()
@click.argument("actor", metavar="ACTOR | pod", shell_complete=complete_described)
@click.argument("pod", metavar="[POD]", required=False, shell_complete=complete_pod)
@run_dir_option
@click.option("-n", "--namespace", metavar="NS", help="The pod's namespace.")
@output_option("json")
def describe(actor: str, pod: str | None, run_dir: str, namespace: str | None, output: str | None) -> None:
    r"""Show the counters and the state of ACTOR, or with `describe pod POD` a pod and its events.

    \b
    Example: supervisor describe pleg
    """
    kind, slash, name = actor.partition("/")
    if slash and pod is None and kind in POD_KINDS:  # kubectl's form
        actor, pod = "pod", name or None
    with connect(run_dir) as client:
        if pod is not None:
            if actor not in POD_KINDS:
                raise click.UsageError(f"{actor!r} takes no name; write `describe pod {pod}`")
            describe_pod(client, pod, namespace, output)
            return
        if actor == "pod":
            raise click.UsageError("cannot describe a pod without its name: write `describe pod POD`")
        found = client.ask(actor, Describe())
    if output == "json":
        render.echo(render.json_text(render.fields(found)))
        return
    _print_description(found)


def _print_description(found: Description) -> None:
    render.pairs(
        {
            "Name": found.name,
            "PID": str(found.pid),
            "Incarnation": str(found.incarnation),
            "Uptime": human_duration(found.uptime_s),
            "Mailbox": str(found.mailbox),
            "Tasks": str(found.tasks),
            "Timers": str(found.timers),
            "Pending asks": str(found.pending_asks),
            "Dropped": ", ".join(f"{cause} {n}" for cause, n in found.dropped.items()) or "none",
        }
    )
    if found.messages:
        render.echo("Messages:")
        rows = [
            ["  " + m.type, str(m.handled), str(m.failed), f"{m.total_ms / max(1, m.handled):.3f}", f"{m.max_ms:.3f}"]
            for m in found.messages
        ]
        render.table(("  TYPE", "HANDLED", "FAILED", "MEAN MS", "MAX MS"), rows, frozenset({"HANDLED", "FAILED"}))
    if found.state:
        render.echo("State:")
        for line in render.yaml_text(found.state).splitlines():
            render.echo(f"  {line}")
