"""`supervisor console`: a prompt for the same commands, with history and completion; `-c` for scripts.

A line runs the same command as in a shell, with the console's run directory. Completion is click's.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import ShellComplete

from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli import COMMANDS, group
from supervisor.cli.common import run_dir_option
from supervisor.cli.errors import INTERRUPTED
from supervisor.cli.views import render
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import StyleAndTextTuples

NOT_HERE = ("start", "run", "console", "completion")
LEAVE = ("exit", "quit")
CACHE_S = 2.0
"""Time for which completions are cached, because they ask the agent."""


@click.command()
@run_dir_option
@click.option("-c", "commands", metavar="CMD", multiple=True, help="Run this command and end; may be repeated.")
def console(run_dir: str, commands: tuple[str, ...]) -> None:
    """Run commands on a running agent from a prompt.

    With -c, or when the input is not a terminal, commands are run in turn until one fails; the exit code is its code.
    """
    if commands:
        sys.exit(run_lines(commands, run_dir))
    if not sys.stdin.isatty():
        sys.exit(run_lines(sys.stdin, run_dir))
    Repl(run_dir).loop()


def run_line(line: str, run_dir: str) -> int:
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
    if words[0] in NOT_HERE:
        render.echo(f"supervisor: cannot run {words[0]} in the console: run it in a shell", err=True)
        return 2
    return _run(words, run_dir)


def _run(words: list[str], run_dir: str) -> int:
    try:
        result = group.main(words, prog_name="", standalone_mode=False, obj=run_dir)
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


def complete(line: str, run_dir: str) -> list[tuple[str, str]]:
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
    items = ShellComplete(group, {"obj": run_dir}, "", "").get_completions(words, incomplete)
    return [(item.value, item.help or "") for item in items if item.type == "plain"]


class Completions:
    """`complete` with a cache, so that not every key asks the agent."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._place = ""
        self._at = 0.0
        self._found: list[tuple[str, str]] = []

    def of(self, line: str) -> list[tuple[str, str]]:
        """Completions of the line's last word."""
        word_start = max(line.rfind(" "), line.rfind("\t")) + 1
        place, typed = line[:word_start], line[word_start:]
        if not place or typed[:1] == "-" or "/" in typed:
            return complete(line, self._run_dir)
        now = time.monotonic()
        if place != self._place or now - self._at > CACHE_S:
            self._place, self._at, self._found = place, now, complete(place, self._run_dir)
        return [(name, text) for name, text in self._found if name.rpartition("/")[2].startswith(typed)]


class Repl:
    """The interactive prompt."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._last_code = 0

    def loop(self) -> None:
        """Read and run lines until Ctrl-D or `exit`."""
        render.echo(self._greeting())
        session = self._session()
        while True:
            try:
                line = session.prompt(self._prompt())
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if line.strip() in LEAVE:
                return
            if line.strip():
                self._last_code = run_line(line, self._run_dir)

    def _greeting(self) -> str:
        hint = "`help` lists commands, Tab completes, Ctrl-D leaves"
        try:
            with Client(self._run_dir) as client:
                rows = client.actors()
        except (ActorError, ProtocolError, OSError) as error:
            return f"{error}\n{hint}"
        ready = sum(row.state == "ready" for row in rows)
        return f"agent at {self._run_dir}, {ready} of {len(rows)} processes ready; {hint}"

    def _prompt(self) -> StyleAndTextTuples:
        failed = self._last_code not in (0, INTERRUPTED)
        if not render.colours():
            return [("", "supervisor> ")]
        return [("bold", "supervisor"), ("fg:ansired" if failed else "fg:ansigreen", "> ")]

    def _session(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - not for `-c`
        from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter  # noqa: PLC0415
        from prompt_toolkit.document import Document  # noqa: PLC0415
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory  # noqa: PLC0415

        found = Completions(self._run_dir)

        class FromCommands(Completer):
            def get_completions(self, document: Document, _event: CompleteEvent) -> Iterable[Completion]:
                line = document.text_before_cursor
                typed = len(line) - (max(line.rfind(" "), line.rfind("\t")) + 1)
                for name, text in found.of(line):
                    yield Completion(name, start_position=-typed, display_meta=text)

        file = history_file()
        history: History = FileHistory(str(file)) if file else InMemoryHistory()
        return PromptSession(history=history, completer=ThreadedCompleter(FromCommands()), complete_while_typing=False)


def history_file() -> Path | None:
    """$XDG_STATE_HOME/nodevisor/history, by default in ~/.local/state; None when it cannot be written."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(base) / "nodevisor" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError as error:
        render.echo(f"supervisor: cannot keep a history in {path}: {error.strerror}", err=True)
        return None
    return path


def run_lines(lines: Iterable[str], run_dir: str) -> int:
    """Run commands in turn until one fails, and return the last exit code."""
    for line in lines:
        if line.strip() in LEAVE:
            break
        if code := run_line(line, run_dir):
            sys.stdout.flush()
            return code
    return 0
