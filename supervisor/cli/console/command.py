"""`supervisor console`: a prompt for the same commands, `-c` for scripts.

A line runs the same command as in a shell, with the console's agent and role. Completion is click's.
"""

from __future__ import annotations

import sys

import click

from proto.agent.console_roles import ROLES
from supervisor.cli.common import Session, run_dir_option
from supervisor.cli.console.lines import run_lines
from supervisor.cli.console.repl import Repl


@click.command()
@run_dir_option
@click.option("-c", "commands", metavar="CMD", multiple=True, help="Run this command and end; may be repeated.")
@click.option("--role", type=click.Choice(ROLES), help="Send only what this role may. Without: all but eval.")
def console(run_dir: str, commands: tuple[str, ...], role: str | None) -> None:
    r"""Run commands on a running agent from a prompt.

    Commands of -c or of an input that is no terminal run in turn, until one fails.

    \b
    Example: supervisor console --role read -c ps
    """
    session = Session(run_dir, role or "")
    if commands:
        sys.exit(run_lines(commands, session))
    if not sys.stdin.isatty():
        sys.exit(run_lines(sys.stdin, session))
    Repl(session).loop()
