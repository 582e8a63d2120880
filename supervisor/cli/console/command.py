"""`supervisor console`: a prompt for the same commands, on this machine or another, `-c` for scripts.

A line runs the same command as in a shell, with the console's agent and role. Completion is click's.
"""

from __future__ import annotations

import sys

import click

from proto.agent.console_roles import ROLES
from supervisor.cli.common import Session, run_dir_option
from supervisor.cli.console.keys import client_key, keys, tcp_address
from supervisor.cli.console.lines import run_lines
from supervisor.cli.console.repl import Repl


@click.group(invoke_without_command=True)
@run_dir_option
@click.option("-c", "commands", metavar="CMD", multiple=True, help="Run this command and end; may be repeated.")
@click.option("--role", type=click.Choice(ROLES), help="Send only what this role may. Without: all but eval.")
@click.option("--connect", "address", metavar="HOST:PORT", help="The console of another machine; needs --key.")
@click.option("--key", "key_file", metavar="FILE", type=click.Path(dir_okay=False), help="From `console keys add`.")
@click.pass_context
def console(
    ctx: click.Context,
    run_dir: str,
    commands: tuple[str, ...],
    role: str | None,
    address: str | None,
    key_file: str | None,
) -> None:
    r"""Run commands on a running agent from a prompt.

    Commands of -c run in turn, until one fails. So do lines of an input that is no terminal.

    \b
    Example: supervisor console --connect 10.0.0.7:10270 --key ops.key -c ps
    """
    if ctx.invoked_subcommand is not None:
        return
    session = session_for(run_dir, role or "", address, key_file)
    if commands:
        sys.exit(run_lines(commands, session))
    if not sys.stdin.isatty():
        sys.exit(run_lines(sys.stdin, session))
    Repl(session).loop()


def session_for(run_dir: str, role: str, address: str | None, key_file: str | None) -> Session:
    """The session of these options. Raises CommandError."""
    if (address is None) != (key_file is None):
        raise click.UsageError("--connect and --key belong together")
    if address is None or key_file is None:
        return Session(run_dir, role)
    if role:
        raise click.UsageError("the key decides on the role of a remote console: leave out --role")
    return Session(tcp_address(address), "", client_key(key_file))


console.add_command(keys)
