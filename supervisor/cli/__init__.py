"""The command line `supervisor`: the table of its subcommands, and the one place that reports errors.

A subcommand's module is imported when the subcommand runs, because scripts start commands often. An error becomes one
line on stderr and exit code 1, or 2 for wrong usage.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from proto.common import interpreter
from proto.wire.errors import ActorDead, ActorError, ProtocolError, Refused
from supervisor.cli.errors import INTERRUPTED, CommandError
from supervisor.cli.views import failures, output

COMMANDS = {
    "start": "agent.start",
    "run": "run.command",
    "ps": "agent.processes",
    "why": "agent.why",
    "deaths": "agent.deaths",
    "restart": "agent.processes",
    "stop": "agent.processes",
    "kill": "actors.service",
    "describe": "agent.processes",
    "state": "actors.inside",
    "mailbox": "actors.inside",
    "stacks": "actors.inside",
    "profile": "actors.profile",
    "ask": "actors.ask",
    "eval": "actors.ask:evaluate",
    "verbosity": "agent.processes",
    "fault": "faults",
    "bench": "bench.command",
    "config": "agent.config",
    "pods": "pods.pods",
    "top": "pods.top",
    "objects": "pods.objects",
    "images": "pods.images",
    "plan": "pods.plan",
    "timeline": "pods.timeline",
    "logs": "pods.container_logs",
    "exec": "streams.remote",
    "attach": "streams.remote",
    "port-forward": "streams.remote",
    "events": "pods.events",
    "tap": "streams.tap",
    "record": "recorder.record",
    "replay": "recorder.replay",
    "upgrade": "agent.upgrade",
    "console": "console.command",
    "completion": "completion",
}
"""Module of each subcommand below this package, in the order of the help; `:NAME` of another attribute."""


class Commands(click.Group):
    """The subcommands, found by name in `COMMANDS`; converts errors of the agent to `CommandError`."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Every subcommand's name."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a subcommand; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = importlib.import_module(f"supervisor.cli.{module}")
        command: click.Command = getattr(found, attribute or cmd_name.replace("-", "_"))
        _keep_line_breaks(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand of a line. Raises click.UsageError with the likely names for an unknown one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}.{_likely(name)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)  # the usual end of commands that follow a stream: no message
        except Refused as error:
            raise CommandError(f"{error.message} ({error.reason})" if error.reason else error.message) from error
        except (ActorError, ProtocolError) as error:
            prefix = "cannot finish: " if isinstance(error, (ActorDead, ProtocolError)) else ""
            raise CommandError(f"{prefix}{error}") from error
        except UnicodeEncodeError as error:  # a path as bytes that are no UTF-8: no message or setting can have it
            if os.environ.get(failures.TRACEBACK):
                raise
            raise CommandError(f"cannot use {error.object[:200]!a}: it is not UTF-8; rename it") from error
        except failures.kinds() as error:
            if failures.keeps_traceback(error, ctx.invoked_subcommand):
                raise
            raise _ended_by(error) from error


def _ended_by(error: Exception) -> CommandError:
    if isinstance(error, output.OutputError):
        output.discard_output()
    return CommandError(failures.line_of(error))


def _likely(name: str) -> str:
    """A question for the subcommand that was meant; empty when none is similar."""
    import difflib  # noqa: PLC0415 - for wrong names only

    found = difflib.get_close_matches(name, COMMANDS)
    return f" Did you mean: {', '.join(found)}?" if found else ""


def _keep_line_breaks(command: click.Command) -> None:
    r"""Turn the mark `\b` of raw docstrings into the character by which click keeps an example's lines."""
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        _keep_line_breaks(below)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="nodevisor", prog_name="supervisor")
def group() -> None:
    """Run Kubernetes pods on this machine, with one supervised process per manager, and inspect them."""


def main() -> None:
    """Entry point of the console script. In a locale that is not UTF-8, the process executes itself again."""
    try:
        interpreter.enter_utf8_mode()
    except OSError as error:
        CommandError(f"cannot execute {sys.executable}: {error.strerror}; set PYTHONUTF8=1").show()
        sys.exit(1)
    output.prepare()
    try:
        group(prog_name="supervisor")
    except output.OutputError as error:  # of the group's own --help, --version and completion
        if failures.keeps_traceback(error, None):
            raise
        _ended_by(error).show()
        sys.exit(1)
