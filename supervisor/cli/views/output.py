"""Standard input, output and error of a command: open, able to take any text, and with errors of their own kind."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN, STDOUT, STDERR = 0, 1, 2
_USERS_CHOICE = {"PYTHONIOENCODING", "PYTHONUTF8"}
"""Variables with which a user chooses the encoding of Python's streams."""


class OutputError(OSError):
    """The command's output cannot be written, for example to a full disk."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Turn an OSError into OutputError. BrokenPipeError stays: click ends the command without a message then."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.errno, error.strerror) from error


class _Output(io.FileIO):
    """Standard output, whose errors differ from those of the files that a command reads."""

    def write(self, content: ReadableBuffer, /) -> int:
        """Write bytes, as far as they are taken. Raises OutputError."""
        with writing():
            return super().write(content)


def prepare() -> None:
    """Open what the caller has closed, and replace `sys.stdout`. Call it before another file takes their numbers.

    Python has None for a closed stream. A closed output gets a file that takes no writes, so that its loss is an error;
    messages to a closed standard error vanish.
    """
    for number, mode in ((STDIN, os.O_RDONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_WRONLY)):
        if _is_closed(number):
            with contextlib.suppress(OSError):  # no /dev/null here
                os.set_inheritable(os.open(os.devnull, mode), True)
    sys.stdin = sys.stdin or open(STDIN, closefd=False)  # noqa: SIM115 - until the end
    sys.stderr = sys.stderr or open(STDERR, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        _keep_terminals_encoding(stream)
    sys.stdout = _checked(sys.stdout)


def _keep_terminals_encoding(stream: TextIO | None) -> None:
    """In UTF-8 mode, which is for paths, give a terminal the locale's encoding. Pipes and files get UTF-8.

    In the locale C, Python has that mode by itself, and terminals get UTF-8, too.
    """
    if not sys.flags.utf8_mode or not _USERS_CHOICE.isdisjoint(os.environ):
        return
    if not isinstance(stream, io.TextIOWrapper) or not stream.isatty():
        return
    import locale  # noqa: PLC0415 - for a terminal in UTF-8 mode only

    if locale.setlocale(locale.LC_CTYPE) not in ("C", "POSIX"):
        with contextlib.suppress(LookupError):  # an encoding that Python lacks
            stream.reconfigure(encoding=locale.getencoding(), errors="backslashreplace")


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def _checked(present: TextIO | None) -> TextIO:
    """The same output with errors of its own kind, and escapes for characters that its encoding lacks."""
    if present is None:
        return io.TextIOWrapper(io.BufferedWriter(_Output(STDOUT, "w", closefd=False)))
    if not isinstance(present, io.TextIOWrapper) or present.fileno() != STDOUT:
        return present
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(STDOUT, "w", closefd=False)),
        encoding=present.encoding,
        errors="backslashreplace" if present.errors == "strict" else present.errors,
        newline="\n",
        line_buffering=present.line_buffering,
        write_through=present.write_through,
    )


def discard_output() -> None:
    """Drop what is still to be written: at its end Python would try again, and fail with a message of its own."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)
