"""`supervisor config history`: the results of the configuration files' last changes."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from supervisor.cli import run_directory
from supervisor.cli.common import output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render


@click.command()
@run_dir_option
@output_option("json")
def history(run_dir: str, output: str | None) -> None:
    """List the last 50 changes of the configuration files with their results, oldest first.

    The history is that of the run directory's agent, running or not.
    """
    from supervisor.config.reload import store  # noqa: PLC0415
    from supervisor.host import settings_file  # noqa: PLC0415

    run_directory.check(run_dir)
    if not Path(run_dir, settings_file.SETTINGS).exists():  # without it the root directory would be a guess
        raise CommandError(
            f"cannot show the configuration's history: no agent has run in {run_dir}; start one, or name its run "
            "directory with --run-dir"
        )
    try:
        entries = store.history(settings_file.read(run_dir).root_dir)
    except OSError as error:
        raise CommandError(f"cannot show the configuration's history: {error}") from error
    if output == "json":
        render.echo(render.json_text([msgspec.to_builtins(entry) for entry in entries]))
        return
    rows = [
        [entry.time, entry.verdict, " ".join(entry.actors), "; ".join(entry.changes), " ".join(entry.message.split())]
        for entry in entries
    ]
    render.table(("TIME", "VERDICT", "RESTARTED", "CHANGED", "WHAT"), rows)
