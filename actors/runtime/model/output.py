"""Reads a command's stdout and stderr to the end and keeps a bounded part."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterable

from actors._base.messaging.timers import LONGEST_WAIT_S

DRAIN_S = 2.0
"""Waits this long for the end of the output: a process that the command leaves behind may keep it open."""
BLOCK = 65536
MOST_IN_TERMINAL = 1024 * 1024
"""More than the 640 KB that Linux keeps for a terminal's reader (drivers/tty/tty_buffer.c)."""


def most_held(fd: int) -> int:
    """The most bytes that the pipe or terminal `fd` holds for its reader."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    except OSError:
        return MOST_IN_TERMINAL


def collect(process: subprocess.Popen[bytes], deadline: float | None, most_bytes: int) -> tuple[bytes, bytes]:
    """Read both streams until their end, or until DRAIN_S after the command's; keep `most_bytes` of each.

    What they hold at that time is read, too. `deadline` is on the monotonic clock. Raises TimeoutError.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}

    def keep(fd: int, chunk: bytes) -> None:
        kept[fd] += chunk[: max(0, most_bytes - len(kept[fd]))]

    pidfd = os.pidfd_open(process.pid)
    ended_at: float | None = None
    try:
        with selectors.DefaultSelector() as selector:
            for fd in (*kept, pidfd):
                selector.register(fd, selectors.EVENT_READ)
            while selector.get_map():
                if ended_at is not None and time.monotonic() > ended_at + DRAIN_S:
                    _read_rest(kept, keep)
                    break
                for key, _ in selector.select(_wait_s(deadline, ended_at)):
                    if key.fd == pidfd:
                        ended_at = time.monotonic()
                        selector.unregister(pidfd)
                    elif chunk := os.read(key.fd, BLOCK):
                        keep(key.fd, chunk)
                    else:
                        selector.unregister(key.fd)
                if deadline is not None and ended_at is None and time.monotonic() > deadline:
                    raise TimeoutError
    finally:
        os.close(pidfd)
    stdout, stderr = kept.values()
    return bytes(stdout), bytes(stderr)


def _read_rest(fds: Iterable[int], keep: Callable[[int, bytes], None]) -> None:
    """Read what the streams hold, without a wait; their writers may write on."""
    for fd in fds:
        os.set_blocking(fd, False)
        left = most_held(fd)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(fd, min(BLOCK, left)):
                left -= len(chunk)
                keep(fd, chunk)


def _wait_s(deadline: float | None, ended_at: float | None) -> float | None:
    ends = [end for end in (deadline, None if ended_at is None else ended_at + DRAIN_S) if end is not None]
    return min(LONGEST_WAIT_S, max(0.0, min(ends) - time.monotonic())) if ends else None
