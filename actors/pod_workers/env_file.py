"""Variables from a file of a volume, which a container of the same pod wrote (fileKeyRef, KEP-3721).

`parse` is pure. `read` trusts nothing in the volume: no link leads out of it, nothing but a regular file is opened, and
no more than MAX_BYTES are read. Format: https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/
"""

from __future__ import annotations

import os
import stat

MAX_BYTES = 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
"""What the kubelet's reader takes as one line."""
_MAX_LINKS = 40
_BLANK = " \t"


class EnvFileError(Exception):
    """The file cannot be read or is not of the format: why, with its line."""


def parse(text: str, key: str) -> str:
    """The value of `key`; empty when it is not there. Raises EnvFileError for what stands before it.

    A line is `NAME='value'`, the value as it stands up to the next quote, over several lines if need be; a comment may
    follow. `NAME=` with a blank after it is empty, as in a shell.
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
        if name == key:
            return value
    return ""


def _quoted(lines: list[str], number: int, rest: str) -> tuple[str, int]:
    """The value that begins on line `number` with `rest`, and the number of the line it ends on."""
    first = number
    if not rest.startswith("'"):
        raise EnvFileError(f"line {number}: the value must be in single quotes")
    value, quote, after = rest[1:].partition("'")
    while not quote:
        if number == len(lines):
            raise EnvFileError(f"line {first}: the quote is not closed")
        more, quote, after = _line(lines, number).partition("'")
        value += "\n" + more
        number += 1
    after = after.lstrip(_BLANK)
    if after and not after.startswith("#"):
        raise EnvFileError(f"line {number}: something stands after the closing quote")
    return value, number


def _line(lines: list[str], index: int) -> str:
    line = lines[index].removesuffix("\r")
    if len(line.encode("utf-8", "surrogateescape")) >= MAX_LINE_BYTES:
        raise EnvFileError(f"line {index + 1}: longer than {MAX_LINE_BYTES} bytes")
    return line


def read(volume: str, path: str) -> str:
    """The text of the file at `path` in the directory `volume`. Raises EnvFileError."""
    try:
        descriptor = _open_inside(volume, path)
    except OSError as error:
        raise EnvFileError(f"cannot open {path}: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise EnvFileError(f"{path} is larger than {MAX_BYTES} bytes")
    return content.decode("utf-8", "surrogateescape")


def _open_inside(volume: str, path: str) -> int:
    """Open `path` with `volume` as its root: links, also absolute ones, and `..` stay inside. Raises OSError,
    and EnvFileError for what is no regular file.

    Every component is opened without following links, relative to the one before: what is swapped for a link meanwhile
    is an error, never a way out.
    """
    opened = [os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    links = 0
    try:
        while todo:
            part = todo.pop()
            if part == "..":
                if len(opened) > 1:
                    os.close(opened.pop())
                continue
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened[-1])
            if not stat.S_ISLNK(os.fstat(inner).st_mode):
                opened.append(inner)
                continue
            target = os.readlink("", dir_fd=inner)
            os.close(inner)
            links += 1
            if links > _MAX_LINKS:
                raise OSError(40, "too many levels of symbolic links")
            if target.startswith("/"):
                while len(opened) > 1:
                    os.close(opened.pop())
            todo += [one for one in reversed(target.split("/")) if one not in ("", ".")]
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            raise EnvFileError(f"{path} is not a regular file")  # opening a FIFO or device may block, or do something
        return os.open(f"/proc/self/fd/{opened[-1]}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in opened:
            os.close(descriptor)
