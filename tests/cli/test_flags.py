"""Flags of every command at any position, as kubectl's users write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from supervisor.cli import COMMANDS, group
from supervisor.cli.streams import remote


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command by its words, those of groups too."""
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        yield from within(name, command)


def within(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for inner, one in command.commands.items():
        yield from within(f"{name} {inner}", one)


ALL = dict(leaves())
POSITIONAL = [name for name, command in ALL.items() if any(isinstance(one, click.Argument) for one in command.params)]


def value_of(kind: click.ParamType, directory: Path) -> str:
    match kind:
        case click.Choice():
            return str([*kind.choices][-1])
        case click.IntRange():
            return str(int(kind.min or 0) + 2)
        case click.Path():
            file = directory / "file"
            file.touch()
            return str(file)
        case click.FloatRange():
            return "3"
    return {"integer": "3", "float": "3", "duration": "3ms"}.get(kind.name, "a")


def words_of(option: click.Option, directory: Path) -> list[str]:
    name = max(option.opts, key=len)
    if option.is_flag or option.count:
        return [name]
    return [name, value_of(option.type, directory)] if option.nargs == 1 else []


def parsed(name: str, command: click.Command, words: list[str]) -> dict[str, Any]:
    context = command.make_context(name, [*words], parent=click.Context(group))
    return context.params | {"program": context.meta.get(remote.PROGRAM)}


@pytest.mark.parametrize("name", POSITIONAL)
def test_a_flag_means_the_same_in_every_place(name: str, tmp_path: Path) -> None:
    command = ALL[name]
    arguments = [value_of(one.type, tmp_path) for one in command.params if isinstance(one, click.Argument)]
    program = ["--", "sh", "-c", "echo", "--", "-n"] if command is remote.exec else []
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_eager or not (flag := words_of(option, tmp_path)):
            continue
        places = [[*arguments[:at], *flag, *arguments[at:], *program] for at in range(len(arguments) + 1)]
        meant = [parsed(name, command, words) for words in places]
        assert all(one == meant[0] for one in meant), flag
        assert meant[0][option.name or ""] != parsed(name, command, [*arguments, *program])[option.name or ""], flag


def test_the_table_covers_every_command_with_arguments() -> None:
    assert len(ALL) > 20
    assert {"exec", "attach", "port-forward", "logs", "describe", "restart", "verbosity"} <= set(POSITIONAL)


@pytest.mark.parametrize(
    ("words", "container", "program"),
    [
        (["web", "-c", "main", "--", "ls", "-l"], "main", ("ls", "-l")),
        (["-c", "main", "web", "--", "ls", "-c", "x"], "main", ("ls", "-c", "x")),
        (["web", "-itc", "main", "--", "sh"], "main", ("sh",)),
        (["web", "--container=main", "--", "git", "log", "--", "file"], "main", ("git", "log", "--", "file")),
        (["web", "--", "--run-dir", "x"], None, ("--run-dir", "x")),
    ],
)
def test_exec_separates_its_flags_from_the_programs(
    words: list[str], container: str | None, program: tuple[str, ...]
) -> None:
    found = parsed("exec", remote.exec, words)
    assert (found["pod"], found["container"], found["program"]) == ("web", container, program)


@pytest.mark.parametrize("line", ["web ls", "web ls -l", "web -c main ls", "web", "web --", "web ls -- x", "-- web ls"])
def test_exec_without_dashes_is_refused_with_the_usage(line: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(group, ["exec", "--run-dir", str(tmp_path), *line.split()])
    assert result.exit_code == 2
    assert "supervisor exec" in result.output
    assert "-- COMMAND [ARG]..." in result.output
