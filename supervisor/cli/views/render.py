"""Prints tables, JSON and YAML, with colours on a terminal and without elsewhere.

Rich is loaded for colours only. NO_COLOR (https://no-color.org) and TERM=dumb disable colours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import click
import msgspec

from proto.common.safe_text import one_line, shown, shown_json

GAP = "   "


class Cell(str):
    """A string with a Rich style for terminals, such as `green` or `bold red`."""

    style: str

    def __new__(cls, text: str, style: str = "") -> Cell:
        """The text, shown in `style` where there are colours."""
        cell = super().__new__(cls, text)
        cell.style = style
        return cell


def is_terminal(out: TextIO | None = None) -> bool:
    """True when the output is a terminal."""
    return (out or sys.stdout).isatty()


def colours(out: TextIO | None = None) -> bool:
    """True on a terminal with colours, unless the user has turned them off."""
    return is_terminal(out) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def echo(text: str = "", *, style: str = "", err: bool = False, file: Any = None) -> None:
    """Print untrusted text with its control characters escaped. `style` is one of click's colours."""
    safe = shown(text)
    click.echo(click.style(safe, fg=style) if style and colours() else safe, err=err, file=file)


def progress(text: str) -> None:
    """Show untrusted text in the last line of a terminal, in place of the text before; nothing elsewhere."""
    if is_terminal(sys.stderr):
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        click.echo(f"\r\x1b[K{one_line(text)[: max(width - 1, 20)]}", nl=False, err=True)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()) -> None:
    """Print a table. The columns in `right` are right-aligned."""
    if colours():
        _print_styled(headers, rows, right)
        return
    for line in plain_lines(headers, rows, right):
        echo(line)


def plain_lines(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()
) -> list[str]:
    """The table as aligned lines of full length. An empty cell is `-`, so that programs can count columns."""
    filled = [[one_line(cell) or "-" for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *filled]) for i in range(len(headers))]
    return [join(line, widths, [header in right for header in headers]) for line in [headers, *filled]]


def join(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    """A line of a table."""
    padded = (
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(map(one_line, cells), widths, right, strict=True)
    )
    return GAP.join(padded).rstrip()


def _print_styled(headers: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str]) -> None:
    """Print lines of full length and leave their wrapping to the terminal, so that names can be copied.

    Rich's own table breaks names to fit the terminal's width, and drops columns of a narrow one.
    """
    from rich.console import Console  # noqa: PLC0415 - see the module docstring
    from rich.text import Text  # noqa: PLC0415

    lines = [[Text(header, "bold") for header in headers]]
    lines += [[Text(one_line(cell), cell.style if isinstance(cell, Cell) else "") for cell in row] for row in rows]
    widths = [max(line[column].cell_len for line in lines) for column in range(len(headers))]
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        for cell, width, header in zip(line, widths, headers, strict=True):
            cell.align("right" if header in right else "left", width)
        joined = Text(GAP).join(line)
        joined.rstrip()
        console.print(joined)


def styled(text: str, style: str) -> str:
    """Text for `click.echo`, escaped, and in one of click's colours if there are colours."""
    text = one_line(text)
    return click.style(text, fg=style) if colours() else text


def json_text(value: Any) -> str:
    """Indented JSON of plain values and records."""
    return shown_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def json_line(value: Any) -> str:
    """JSON on one line, for streams."""
    return shown_json(msgspec.json.encode(value).decode())


def yaml_text(value: Any) -> str:
    """YAML of plain values, without sorting of keys."""
    import yaml  # noqa: PLC0415 - for the commands that print it only

    dumped: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return dumped.rstrip("\n")


def fields(record: msgspec.Struct) -> dict[str, Any]:
    """All fields of a record as plain values, with defaults."""
    return {name: msgspec.to_builtins(getattr(record, name)) for name in record.__struct_fields__}


def mib(kib: int) -> str:
    """A size in MiB; empty for 0, which means unknown."""
    return f"{kib / 1024:.1f}M" if kib else ""


def pairs(values: Mapping[str, str]) -> None:
    """Print `Key: value` lines, aligned as kubectl describe does."""
    width = max(map(len, values), default=0) + 1
    for key, value in values.items():
        echo(f"{key + ':':<{width}}  {value}")
