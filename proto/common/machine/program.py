"""Runs a program that is not trusted: with a deadline, bounds on its output, and a process group of its own. Blocks."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import IO, NamedTuple

MAX_OUTPUT_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024
KILLED_S = 1.0
"""Time for its end after SIGKILL: a call that the kernel cannot interrupt must not hold the caller's thread."""


class OutputTooLongError(Exception):
    """The program printed more than MAX_OUTPUT_BYTES."""


class Ended(NamedTuple):
    """A program that has ended."""

    output: bytes
    errors: str
    """The end of its standard error."""
    code: int
    """Its exit code, or the negative number of a signal."""


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float,
    most_errors: int,
    request: bytes = b"",
    started: Callable[[int], None] = lambda _: None,
) -> Ended:
    """Run `command` with `request` as standard input. At an error its process group is killed.

    `most_errors`: bytes of standard error. `started` gets its process ID. A child that outlives it is not waited for.

    Raises TimeoutError, OutputTooLongError, and OSError and ValueError for a program that cannot be run, such as one
    with a NUL in an argument.
    """
    # A file in memory: a pipe could block here, for a program that reads nothing.
    with open(os.memfd_create("request"), "w+b") as stdin:
        stdin.write(request)
        stdin.seek(0)
        process = subprocess.Popen(
            command, env=environment, bufsize=0, start_new_session=True,
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    try:
        started(process.pid)
        output, errors = _output(process, time.monotonic() + timeout_s, most_errors)
    finally:
        _end(process)
    return Ended(output, errors.decode(errors="replace").strip(), process.returncode)


def _output(process: subprocess.Popen[bytes], deadline: float, most_errors: int) -> tuple[bytes, bytes]:
    """Standard output, and the last `most_errors` bytes of standard error, of a process that has ended.

    Raises TimeoutError at `deadline`, a monotonic time, OutputTooLongError and OSError.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    printed, errors = bytearray(), bytearray()
    pidfd = os.pidfd_open(process.pid)
    try:
        with process.stdout, process.stderr, DefaultSelector() as selector:
            for pipe, content in ((process.stdout, printed), (process.stderr, errors)):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, EVENT_READ, content)
            selector.register(pidfd, EVENT_READ)
            while process.poll() is None:
                if (left_s := deadline - time.monotonic()) <= 0:
                    raise TimeoutError
                for key, _ in selector.select(left_s):
                    if key.fd != pidfd and not _read(key.fd, key.data):
                        selector.unregister(key.fileobj)
                _check(printed, errors, most_errors)
            _read_rest(process.stderr, errors)
            _read_rest(process.stdout, printed)
            _check(printed, errors, most_errors)
    finally:
        os.close(pidfd)
    return bytes(printed), bytes(errors)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill its process group if it has not ended."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # later runs reap it
            process.wait(KILLED_S)


def _read(pipe: int, content: bytearray) -> bool:
    """Read what is there, once. False when all writing ends are closed."""
    try:
        part = os.read(pipe, READ_BYTES)
    except BlockingIOError:
        return True
    content += part
    return bool(part)


def _read_rest(pipe: IO[bytes], content: bytearray) -> None:
    """Read what it wrote last, up to a limit: a child that outlives it may write on."""
    before = -1
    while before < len(content) <= MAX_OUTPUT_BYTES:
        before = len(content)
        _read(pipe.fileno(), content)


def _check(printed: bytearray, errors: bytearray, most_errors: int) -> None:
    """Drop all but the end of standard error. Raises OutputTooLongError."""
    del errors[:-most_errors]
    if len(printed) > MAX_OUTPUT_BYTES:
        raise OutputTooLongError
