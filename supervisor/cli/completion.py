"""`supervisor completion`: print the script with which a shell completes commands, flags, actors and pods."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_SUPERVISOR_COMPLETE"
"""The environment variable that starts click's completion. Click derives its name from the program's."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    For bash and zsh: eval "$(supervisor completion bash)" in ~/.bashrc, or zsh in ~/.zshrc. For fish: supervisor
    completion fish > ~/.config/fish/completions/supervisor.fish.
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "supervisor", VARIABLE).source())
