"""Parses an environment file that a container of the same pod wrote to a volume (fileKeyRef, KEP-3721). Pure.

The volume actor reads the file. Format:
https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

MAX_BYTES = 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
"""The longest line that the kubelet's reader takes."""
_BLANK = " \t"


class EnvFileError(Exception):
    """The file does not have the format; the message has the line number."""


class EnvFile:
    """The values of some keys in a file, which is parsed once: ten thousand keys of a large file would take hours.

    It keeps no other text: a container can make the lines of a mebibyte take twenty in memory.
    """

    def __init__(self, text: str, keys: Collection[str]) -> None:
        self._values: dict[str, str] = {}
        self._problem = ""
        missing = set(keys)
        try:
            for name, value in _entries(text):
                if name in missing:
                    missing.remove(name)
                    self._values[name] = value
                if not missing:
                    break
        except EnvFileError as error:
            self._problem = str(error)

    def value(self, key: str) -> str:
        """The first value of a key; empty when the file lacks it. Raises EnvFileError for a bad line before it."""
        if key not in self._values and self._problem:
            raise EnvFileError(self._problem)
        return self._values.get(key, "")


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Names and values. Raises EnvFileError.

    A line is `NAME='value'`. The value goes up to the next quote, over several lines if needed. A comment may follow.
    `NAME=` with a blank after it is empty, as in a shell.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    number = 0
    while number < len(lines):
        line = _line(lines, number).lstrip(_BLANK)
        number += 1
        if not line or line.startswith("#"):
            continue
        name, equals, rest = line.partition("=")
        if not equals:
            raise EnvFileError(f"line {number}: missing '='")
        if not name or name != name.rstrip(_BLANK):
            raise EnvFileError(f"line {number}: a name without blanks must stand before '='")
        if not rest or rest[0] in _BLANK:
            if rest:
                value = ""
            else:
                raise EnvFileError(f"line {number}: the value must be in single quotes")
        else:
            value, number = _quoted(lines, number, rest)
        yield name, value


def _quoted(lines: list[str], number: int, rest: str) -> tuple[str, int]:
    """(the value that begins on line `number` with `rest`, the number of its last line)."""
    first = number
    if not rest.startswith("'"):
        raise EnvFileError(f"line {number}: the value must be in single quotes")
    value, quote, after = rest[1:].partition("'")
    parts = [value]
    while not quote:
        if number == len(lines):
            raise EnvFileError(f"line {first}: the quote is not closed")
        more, quote, after = _line(lines, number).partition("'")
        parts.append(more)
        number += 1
    after = after.lstrip(_BLANK)
    if after and not after.startswith("#"):
        raise EnvFileError(f"line {number}: unexpected text after the closing quote")
    return "\n".join(parts), number


def _line(lines: list[str], index: int) -> str:
    line = lines[index].removesuffix("\r")
    if len(line.encode("utf-8", "surrogateescape")) >= MAX_LINE_BYTES:
        raise EnvFileError(f"line {index + 1}: longer than {MAX_LINE_BYTES} bytes")
    return line
