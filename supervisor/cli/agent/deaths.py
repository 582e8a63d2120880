"""The command deaths: every death and hang of actors, also under former supervisors. It needs no running agent."""

from __future__ import annotations

import time
from pathlib import Path

import click

from proto.agent import registry
from supervisor.cli import run_directory
from supervisor.cli.common import complete_actor, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.process.death_log import NAME, Death, read

HEADERS = ("TIME", "ACTOR", "INCARNATION", "CAUSE", "IN FLIGHT", "REASON", "EVIDENCE")


@click.command()
@click.argument("actor", required=False, shell_complete=complete_actor)
@run_dir_option
@output_option("json")
def deaths(actor: str | None, run_dir: str, output: str | None) -> None:
    """Show every death and hang, oldest first: cause, message in the handler, and evidence.

    Example: supervisor deaths volume
    """
    found = _deaths(Path(run_dir), actor)
    if output == "json":
        render.echo(render.json_text([render.fields(one) for one in found]))
        return
    if not found:
        render.echo("No deaths." if actor is None else f"No deaths of {actor}.")
        return
    render.table(HEADERS, [_row(one) for one in found], frozenset({"INCARNATION"}))


def _deaths(run_dir: Path, actor: str | None) -> list[Death]:
    """The deaths of an actor, None: of all. Raises CommandError when the log cannot be read, or has no such actor."""
    run_directory.check(run_dir)
    directory = run_dir / "deaths"
    try:
        every = read(directory)
    except OSError as error:
        raise CommandError(
            f"cannot read {directory}/{NAME}: {error.strerror}; commands run as the user who started the agent"
        ) from error
    known = registry.NAMES | {one.actor for one in every}
    if actor is not None and actor not in known:
        raise CommandError(f"cannot show deaths of {actor}: no such actor; there are {', '.join(sorted(known))}")
    return [one for one in every if actor in (None, one.actor)]


def _row(one: Death) -> list[str]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.time))
    cause = f"{one.cause}: {one.stall}" if one.stall else one.cause
    in_flight = one.call or "-"
    evidence = one.evidence if one.evidence and Path(one.evidence).exists() else "-"
    return [when, one.actor, str(one.incarnation), cause, in_flight, one.reason, evidence]
