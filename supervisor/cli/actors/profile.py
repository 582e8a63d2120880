"""`supervisor profile ACTOR SECONDS`: sample an actor's stacks; a flame graph as text, SVG or JSON."""

from __future__ import annotations

from pathlib import Path

import click

from proto.agent import flame_graph
from proto.agent.actor import Profile
from supervisor.cli.common import complete_actor, connect, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render

ANSWER_S = 10.0


@click.command()
@click.argument("actor", shell_complete=complete_actor)
@click.argument("seconds", type=click.FloatRange(min=0, min_open=True, max=600), default=5.0)
@run_dir_option
@click.option("--svg", "file", type=click.Path(dir_okay=False), metavar="FILE", help="Write the flame graph as SVG.")
@click.option("--waits", is_flag=True, help="Count threads that wait, too.")
@output_option("json")
def profile(actor: str, seconds: float, run_dir: str, file: str | None, waits: bool, output: str | None) -> None:
    r"""Sample the stacks of ACTOR's threads for SECONDS (5 by default), and show where its time goes.

    Without --waits, threads that wait for messages or locks are left out.

    \b
    Example: supervisor profile pod_workers 10 --svg pod_workers.svg
    """
    with connect(run_dir) as client:
        samples = client.ask(actor, Profile(seconds=seconds), seconds + ANSWER_S).samples
    shown = samples if waits else flame_graph.busy(samples)
    if file is not None:
        _write(file, flame_graph.svg(shown, f"{actor}, {seconds:g} s, {sum(shown.values())} samples"))
    if output == "json":
        render.echo(render.json_text({"actor": actor, "seconds": seconds, "samples": shown}))
    elif file is not None:
        render.echo(f"wrote {file}")
    elif not shown:
        render.echo(f"{actor} only waited; see it with --waits", err=True)
    else:
        for line in flame_graph.text(shown):
            render.echo(line)


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text)
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}") from error
