"""`supervisor kill ACTOR`, and the actor's part of `stop` and `start`."""

from __future__ import annotations

import time

import click

from proto.agent.supervisor import ActorRow, KillActor, StartActor, StopActor
from supervisor.cli.actors.seconds import TIMEOUT
from supervisor.cli.common import complete_actor, connect, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.sockets.client import Client

LOOK_S = 0.02


def stop_actor(actor: str, run_dir: str, output: str | None, timeout_s: float) -> None:
    """End an actor, keep it stopped, and print its row."""
    with connect(run_dir) as client:
        row = client.ask("supervisor", StopActor(name=actor), timeout_s)
    _print(row, output, f"{actor}: stopped; `supervisor start {actor}` starts it again")


@click.command(name="start")
@click.argument("actor", shell_complete=complete_actor)
@run_dir_option
@output_option("json")
@click.option("--timeout", type=TIMEOUT, default=60.0, show_default=True, help="Seconds to wait until it is ready.")
def start_actor(actor: str, run_dir: str, output: str | None, timeout: float) -> None:
    """Start a stopped actor; in back-off, start it at once."""
    with connect(run_dir) as client:
        row = client.ask("supervisor", StartActor(name=actor), timeout)
    _print(row, output, f"{actor}: pid {row.pid}, incarnation {row.incarnation}, {row.state}")


@click.command()
@click.argument("actor", shell_complete=complete_actor)
@run_dir_option
@output_option("json")
@click.option("--timeout", type=TIMEOUT, default=60.0, show_default=True, help="Seconds to wait for the next process.")
def kill(actor: str, run_dir: str, output: str | None, timeout: float) -> None:
    r"""Send ACTOR SIGKILL, and wait until its next incarnation is ready. Pods go on running.

    \b
    Example: supervisor kill pod_workers
    """
    deadline = time.monotonic() + timeout
    began = time.monotonic()
    with connect(run_dir) as client:
        before = client.ask("supervisor", KillActor(name=actor), timeout)
        after = _next_incarnation(client, before, deadline)
    took_ms = (time.monotonic() - began) * 1000
    said = f"{actor}: killed pid {before.pid}; incarnation {after.incarnation}, {after.state} after {took_ms:.0f} ms"
    _print(after, output, said)


def _next_incarnation(client: Client, before: ActorRow, deadline: float) -> ActorRow:
    while True:
        row = next(one for one in client.actors() if one.name == before.name)
        if row.incarnation > before.incarnation and row.state == "ready":
            return row
        if time.monotonic() >= deadline:
            raise CommandError(f"cannot see {before.name} come back in time: it is {row.state}; see `supervisor ps`")
        time.sleep(LOOK_S)


def _print(row: ActorRow, output: str | None, text: str) -> None:
    render.echo(render.json_text(render.fields(row)) if output == "json" else text)
