"""Parses a command line as pflag does, and stops at the first error, as the kubelet does.

It accepts `--flag value`, `--flag=value`, `-v 4`, `-v4`, `-v=4`, switches without a value, `_` for `-`, and repeated
flags. The configuration's validation checks values beyond their syntax.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from supervisor.config.flags import removed, table
from supervisor.config.flags.kinds import KindError
from supervisor.config.flags.table import Flag


class FlagError(ValueError):
    """An invalid command line. The message has the reason."""


class Given(NamedTuple):
    """A parsed command line."""

    values: dict[str, Any]
    """By flag name, as plain values."""
    ignored: dict[str, str]
    """Reasons by name of former kubelets' flags, which are accepted without effect."""
    help: bool = False
    line: tuple[str, ...] = ()
    """The command line itself."""

    def by_field(self) -> dict[str, Any]:
        """The values of flags with a field in KubeletConfiguration, by the field's path."""
        flags = table.flags()
        return {flags[name].field: value for name, value in self.values.items() if flags[name].field}

    def by_setting(self) -> dict[str, Any]:
        """The values of flags with a setting but no field, by the attribute of Settings."""
        flags = table.flags()
        return {flags[name].setting: value for name, value in self.values.items() if flags[name].setting}


def parse(arguments: Sequence[str]) -> Given:
    """Parse a command line without the command's name. Raises FlagError."""
    given = Given({}, {}, line=tuple(arguments))
    rest = iter(arguments)
    for argument in rest:
        if argument in ("--help", "-h"):
            return given._replace(help=True)
        if argument == "--":
            extra = next(rest, None)
            if extra is not None:
                raise _unexpected(extra)
        elif argument.startswith("--"):
            name, sign, value = argument[2:].partition("=")
            _take_long(given, name, value if sign else None, rest)
        elif argument.startswith("-") and argument != "-":
            _take_short(given, argument[1:], rest)
        else:
            raise _unexpected(argument)
    return given


def _unexpected(argument: str) -> FlagError:
    return FlagError(f"unknown argument {argument!r}: only flags are accepted")


def _take_long(given: Given, name: str, value: str | None, rest: Iterator[str]) -> None:
    flag = table.find(name)
    if flag is not None:
        _take(given, flag, f"--{name}", value, rest)
        return
    name = name.replace("_", "-")
    if name in removed.STILL_TAKEN:
        given.ignored[name] = removed.STILL_TAKEN[name]
        if value is None:
            next(rest, None)
        return
    if name == "container-runtime" and value is None:
        value = next(rest, None)
    raise FlagError(removed.explain(name, value) or _unknown(name))


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, table.flags(), n=1, cutoff=0.75)
    return f"unknown flag: --{name}" + (f"; did you mean --{near[0]}?" if near else "")


def _take_short(given: Given, text: str, rest: Iterator[str]) -> None:
    """Parse `v4`, `v=4`, or `v` with the value after it. Letters cannot be combined, because `v` is the only one."""
    flag = next((flag for flag in table.flags().values() if flag.shorthand == text[0]), None)
    if flag is None:
        raise FlagError(f"unknown shorthand flag: {text[0]!r} in -{text}")
    value = text[1:].removeprefix("=")
    _take(given, flag, f"-{text[0]}, --{flag.name}", value if len(text) > 1 else None, rest)


def _take(given: Given, flag: Flag, shown: str, value: str | None, rest: Iterator[str]) -> None:
    if value is None:
        value = flag.kind.no_value if flag.kind.no_value is not None else next(rest, None)
        if value is None:
            raise FlagError(f"flag needs an argument: {shown}")
    if not value and flag.kind.empty_is_unset:
        return
    try:
        given.values[flag.name] = flag.kind.read(value, given.values.get(flag.name))
    except KindError as error:
        secret = flag.field == "staticPodURLHeader"
        raise FlagError(
            f"invalid argument {'(not shown)' if secret else repr(value)} for {shown!r} flag: {error}"
        ) from None
