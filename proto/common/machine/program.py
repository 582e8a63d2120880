"""Runs a program that is not trusted, such as a credential plugin, with a deadline and bounded output. Blocks.

The program has a process group of its own. At an error the whole group is killed.
"""

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
"""Longest wait for its end after SIGKILL. A process in an uninterruptible system call ends later."""


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
    max_error_bytes: int,
    request: bytes = b"",
    started: Callable[[int], None] = lambda _: None,
) -> Ended:
    """Run `command` with `request` as standard input, and wait for its end. At an error its process group is killed.

    `max_error_bytes`: how much of the end of standard error is kept. `started` gets the process ID. Children that
    outlive the program are not waited for.

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
        output, errors = _output(process, time.monotonic() + timeout_s, max_error_bytes)
    finally:
        _end(process)
    return Ended(output, errors.decode(errors="replace").strip(), process.returncode)


def _output(process: subprocess.Popen[bytes], deadline: float, max_error_bytes: int) -> tuple[bytes, bytes]:
    """Standard output, and the last `max_error_bytes` bytes of standard error, of a process that has ended.

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
                _check(printed, errors, max_error_bytes)
            _read_rest(process.stderr, errors)
            _read_rest(process.stdout, printed)
            _check(printed, errors, max_error_bytes)
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
    """Read what the program wrote last, up to MAX_OUTPUT_BYTES: a child that outlives it may go on writing."""
    before = -1
    while before < len(content) <= MAX_OUTPUT_BYTES:
        before = len(content)
        _read(pipe.fileno(), content)


def _check(printed: bytearray, errors: bytearray, max_error_bytes: int) -> None:
    """Cut standard error to its last `max_error_bytes`. Raises OutputTooLongError."""
    del errors[:-max_error_bytes]
    if len(printed) > MAX_OUTPUT_BYTES:
        raise OutputTooLongError
