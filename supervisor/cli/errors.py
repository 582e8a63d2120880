"""The error that ends a command, and the exit code after Ctrl-C."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.views import render

INTERRUPTED = 130
"""A shell's exit code for a command ended by Ctrl-C."""


class CommandError(click.ClickException):
    """A command that failed: its message on stderr after the program's name, exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print the message, without click's word `Error`."""
        render.echo(f"supervisor: {self.format_message()}", err=True, file=file)
