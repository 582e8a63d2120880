"""Runs and completes the lines of a console: the same commands as in a shell, for one agent."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable

import click
from click.shell_completion import ShellComplete

from proto.agent import registry
from supervisor.cli import COMMANDS, group
from supervisor.cli.common import Session
from supervisor.cli.errors import INTERRUPTED
from supervisor.cli.views import render

NOT_HERE = ("start", "run", "console", "completion", "replay")
LOCAL = frozenset((
    "attach", "bench", "config", "deaths", "exec", "fault", "images", "logs", "port-forward", "record", "upgrade",
    "why",
))  # fmt: skip
"""Commands that a remote console does not have: they need the machine's files."""
LEAVE = ("exit", "quit")
CACHE_S = 2.0
"""Time for which completions are cached, because they ask the agent."""


def run_line(line: str, place: str | Session) -> int:
    """Run a command line and return its exit code. Errors go to stderr as in a shell."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        render.echo(f"supervisor: cannot parse the line: {error}", err=True)
        return 2
    if not words:
        return 0
    if words[0] == "help":
        words = [*words[1:], "--help"]
    if problem := why_not_here(words, as_session(place)):
        render.echo(f"supervisor: cannot run {words[0]} in the console: {problem}", err=True)
        return 2
    return _run(words, place)


def as_session(place: str | Session) -> Session:
    """The session of a run directory, or the session itself."""
    return Session(place) if isinstance(place, str) else place


def why_not_here(words: list[str], session: Session) -> str:
    """The reason why a console does not run this command; empty when it does."""
    if words[0] == "start" and not registry.NAMES.isdisjoint(words):
        return ""  # of one actor
    if words[0] in NOT_HERE:
        return "run it in a shell"
    ends_agent = words[0] == "stop" and registry.NAMES.isdisjoint(words)
    if session.key is not None and (words[0] in LOCAL or ends_agent):
        return "run it on the agent's machine"
    return ""


def _run(words: list[str], place: str | Session) -> int:
    try:
        result = group.main(words, prog_name="supervisor", standalone_mode=False, obj=as_session(place))
    except click.UsageError as error:
        render.echo(f"supervisor: {error.format_message()} See `help{_of_command(words)}`.", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        render.echo(err=True)
        return INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    return result if isinstance(result, int) else 0


def _of_command(words: list[str]) -> str:
    return f" {words[0]}" if words[0] in COMMANDS else ""


def complete(line: str, place: str | Session) -> list[tuple[str, str]]:
    """Completions of the line's last word, each with a help text."""
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    incomplete = words.pop() if words and not line[-1:].isspace() else ""
    if not words:
        names = [name for name in (*COMMANDS, "help", "exit") if name not in NOT_HERE]
        context = click.Context(group)
        helps = {name: command.get_short_help_str() for name in names if (command := group.get_command(context, name))}
        return [(name, helps.get(name, "")) for name in names if name.startswith(incomplete)]
    items = ShellComplete(group, {"obj": as_session(place)}, "", "").get_completions(words, incomplete)
    return [(item.value, item.help or "") for item in items if item.type == "plain"]


class Completions:
    """`complete` with a cache, so that not every key asks the agent."""

    def __init__(self, place: str | Session) -> None:
        self._session = place
        self._place = ""
        self._at = 0.0
        self._found: list[tuple[str, str]] = []

    def of(self, line: str) -> list[tuple[str, str]]:
        """Completions of the line's last word."""
        word_start = max(line.rfind(" "), line.rfind("\t")) + 1
        place, typed = line[:word_start], line[word_start:]
        if not place or typed[:1] == "-" or "/" in typed:
            return complete(line, self._session)
        now = time.monotonic()
        if place != self._place or now - self._at > CACHE_S:
            self._place, self._at, self._found = place, now, complete(place, self._session)
        return [(name, text) for name, text in self._found if name.rpartition("/")[2].startswith(typed)]


def run_lines(lines: Iterable[str], place: str | Session) -> int:
    """Run commands in turn until one fails, and return the last exit code."""
    for line in lines:
        if line.strip() in LEAVE:
            break
        if code := run_line(line, place):
            sys.stdout.flush()
            return code
    return 0
