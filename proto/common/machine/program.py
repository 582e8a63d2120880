"""Reads the output of a program that this process has started, with bounds on its time and size. Blocks."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import IO

MAX_OUTPUT_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024
KILLED_S = 1.0
"""Time for its end after SIGKILL: a call that the kernel cannot interrupt must not hold the caller's thread."""


class OutputTooLongError(Exception):
    """The program printed more than MAX_OUTPUT_BYTES."""


def output(process: subprocess.Popen[bytes], deadline: float, most_errors: int) -> tuple[bytes, bytes]:
    """Standard output, and the last `most_errors` bytes of standard error, of a process that has ended.

    Raises TimeoutError at `deadline`, a monotonic time, OutputTooLongError and OSError. Call `end` in each case. A
    child that outlives the process is not waited for.
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


def end(process: subprocess.Popen[bytes]) -> None:
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
