"""A click command with the kubelet's flags: parsed by `supervisor.config.flags`, with click's completion and help."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import click

from proto.agent import registry
from supervisor.config.flags import table
from supervisor.config.flags.parser import FlagError, Given, parse

HELP_COLUMN = 32


class WrongFlags(click.UsageError):
    """An invalid command line; exit code 1, as the kubelet's."""

    exit_code = 1


class KubeletCommand(click.Command):
    """A command with the kubelet's flags. Its function gets them as `given`.

    A line that its `alternative` takes has other words: `given` is that command's context then.
    """

    alternative: click.Command | None = None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the flags. Raises WrongFlags."""
        if ctx.resilient_parsing:  # completion: the line is not finished
            return []
        if self.alternative is not None and (words := _words_of(self.alternative, args)) is not None:
            ctx.params["given"] = words
            return []
        if self.alternative is not None and len(args) == 1 and not args[0].startswith("-"):
            actors = ", ".join(sorted(registry.NAMES))
            raise WrongFlags(f"unknown argument {args[0]!r}: no flag and no actor; there are {actors}", ctx)
        try:
            given = parse(args)
        except FlagError as error:
            raise WrongFlags(str(error), ctx) from error
        if given.help:
            click.echo(self.get_help(ctx), color=ctx.color)
            ctx.exit()
        ctx.params["given"] = given
        return []

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """An option for each flag, for completion."""
        return [*options(), *super().get_params(ctx)]

    def collect_usage_pieces(self, _ctx: click.Context) -> list[str]:
        """The usage: flags only, or an actor."""
        return ["[FLAG]..."] if self.alternative is None else ["[FLAG]... | ACTOR"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags by group; cAdvisor's flags by name only."""
        width = min(ctx.max_content_width or 100, formatter.width)
        groups = dict.fromkeys(flag.group for flag in table.flags().values())
        for group in groups:
            flags = [flag for flag in table.flags().values() if flag.group == group]
            formatter.write(f"\n{group}:\n")
            if group == table.CADVISOR:
                names = ", ".join(f"--{flag.name}" for flag in flags)
                formatter.write(_indented(f"Taken without effect: {names}.", 2, width))
                continue
            for flag in flags:
                formatter.write(_entry(flag, width))
        formatter.write("\nOther:\n")
        formatter.write(_indented("-h, --help".ljust(HELP_COLUMN - 2) + "Show this.", 2, width))


def _words_of(command: click.Command, args: list[str]) -> click.Context | None:
    """The context of the command with these arguments; None when they are not its own, or name no actor.

    Raises UsageError where the first word is an actor, as in `start ACTOR --timeout x`.
    """
    if registry.NAMES.isdisjoint(args):
        return None
    try:
        return command.make_context(command.name, list(args), parent=click.get_current_context().parent)
    except click.UsageError:
        if args[0] in registry.NAMES:
            raise
        return None


def options() -> Iterable[click.Option]:
    """One click option per flag."""
    for flag in table.flags().values():
        names = [f"--{flag.name}"] + ([f"-{flag.shorthand}"] if flag.shorthand else [])
        kind: click.ParamType[Any] = click.STRING
        if flag.metavar in ("FILE", "DIR", "PATH"):
            kind = click.Path(file_okay=flag.metavar != "DIR")
        elif flag.kind.no_value is not None:
            kind = click.Choice(["true", "false"])
        # For click these are switches, so that completion offers a flag after them.
        switch = {"is_flag": True, "type": click.BOOL} if flag.kind.no_value is not None else {"type": kind}
        yield click.Option(names, help=flag.help, **switch)


def _entry(flag: table.Flag, width: int) -> str:
    names = f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"
    left = names if flag.kind.no_value is not None else f"{names} {flag.metavar}"
    words = [flag.help]
    if flag.default not in ("", "[]", "false", "0", "0s", "None"):
        words.append(f"[default: {_default(flag)}]")
    if flag.ignored:
        words.append(f"(Without effect: {flag.ignored}.)")
    text = " ".join(words)
    if len(left) + 4 > HELP_COLUMN:
        return f"  {left}\n" + _indented(text, HELP_COLUMN, width)
    return _indented(left.ljust(HELP_COLUMN - 2) + text, 2, width, HELP_COLUMN)


def _default(flag: table.Flag) -> str:
    """The default for the help. Flags with a field show the field's default, which differs for four flags."""
    from supervisor.config.kubeletconfig import defaults  # noqa: PLC0415
    from supervisor.config.kubeletconfig.typed import encode  # noqa: PLC0415

    if not flag.field:
        return flag.default
    plain = encode.leaf(defaults.default(), flag.field)
    if isinstance(plain, bool):
        return str(plain).lower()
    return ",".join(map(str, plain)) if isinstance(plain, list) else str(plain)


def _indented(text: str, first: int, width: int, rest: int | None = None) -> str:
    indent = " " * (first if rest is None else rest)
    return "\n".join(
        textwrap.wrap(text, width, initial_indent=" " * first, subsequent_indent=indent, drop_whitespace=True,
                      break_on_hyphens=False, break_long_words=False)
    ) + "\n"  # fmt: skip


def deprecations(given: Given) -> list[str]:
    """The kubelet's warnings for deprecated flags, one line each."""
    lines = []
    for name in given.values:
        flag = table.flags()[name]
        if not flag.deprecated:
            continue
        if flag.field:
            how = f"set {flag.field} in the file of --config instead"
        elif flag.setting.startswith("container_gc"):
            how = "eviction thresholds take its place"
        else:
            how = "it will go away"
        lines.append(f"Flag --{name} has been deprecated, {how}")
    return lines


def without_effect(given: Given) -> list[str]:
    """A line for each flag without effect that is set to another value than its default, with the reason."""
    lines = [f"--{name}: {why}" for name, why in given.ignored.items()]
    for name, value in given.values.items():
        flag = table.flags()[name]
        if flag.ignored and value != (flag.default_value() or type(value)()):
            lines.append(f"--{name}: {flag.ignored}")
    return lines


def version_asked(given: Given) -> bool:
    """True when --version asks for a version, and does not set the reported one."""
    return given.values.get("version") in ("true", "raw")


def chosen_version(given: Given) -> str:
    """The version that --version=vX.Y.Z tells the agent to report; empty: none."""
    text: str = given.values.get("version", "")
    return text if text.startswith("v") else ""
