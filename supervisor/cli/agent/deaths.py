"""The command deaths: every death and hang of actors, also under former supervisors. It needs no running agent."""

from __future__ import annotations

import time
from pathlib import Path

import click

from supervisor.cli.common import complete_actor, output_option, run_dir_option
from supervisor.cli.views import render
from supervisor.process.death_log import Death, read

HEADERS = ("TIME", "ACTOR", "INCARNATION", "CAUSE", "IN FLIGHT", "REASON", "EVIDENCE")


@click.command()
@click.argument("actor", required=False, shell_complete=complete_actor)
@run_dir_option
@output_option("json")
def deaths(actor: str | None, run_dir: str, output: str | None) -> None:
    """Show every death and hang, oldest first: cause, message in the handler, and evidence.

    Example: supervisor deaths volume
    """
    found = [one for one in read(Path(run_dir) / "deaths") if actor in (None, one.actor)]
    if output == "json":
        render.echo(render.json_text([render.fields(one) for one in found]))
        return
    if not found:
        render.echo("No deaths." if actor is None else f"No deaths of {actor}.")
        return
    render.table(HEADERS, [_row(one) for one in found], frozenset({"INCARNATION"}))


def _row(one: Death) -> list[str]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.time))
    cause = f"{one.cause}: {one.stall}" if one.stall else one.cause
    in_flight = one.call or "-"
    evidence = one.evidence if one.evidence and Path(one.evidence).exists() else "-"
    return [when, one.actor, str(one.incarnation), cause, in_flight, one.reason, evidence]
