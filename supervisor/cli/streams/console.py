"""`supervisor console`: a prompt for the same commands, with history and completion; `-c` for scripts."""

from __future__ import annotations

import sys

import click

from supervisor.cli.common import run_dir_option


@click.command()
@run_dir_option
@click.option("-c", "commands", metavar="CMD", multiple=True, help="Run this command and end; may be repeated.")
def console(run_dir: str, commands: tuple[str, ...]) -> None:
    """Look at and steer a running agent from a prompt; every command here works there.

    With -c, or when the input is not a terminal, commands are run in turn until one fails; the exit code is its code.
    """
    from supervisor.cli.views.console import Repl, run_lines  # noqa: PLC0415 - for this command only

    if commands:
        sys.exit(run_lines(commands, run_dir))
    if not sys.stdin.isatty():
        sys.exit(run_lines(sys.stdin, run_dir))
    Repl(run_dir).loop()
