"""Reads a command's stdout and stderr to the end and keeps a bounded part."""

from __future__ import annotations

import os
import selectors
import subprocess
import time

from actors._base.messaging.timers import LONGEST_WAIT_S

DRAIN_S = 2.0
"""Waits this long for the end of the output: a process that the command leaves behind may keep it open."""


def collect(process: subprocess.Popen[bytes], deadline: float | None, most_bytes: int) -> tuple[bytes, bytes]:
    """Read both streams until their end, or until DRAIN_S after the command's; keep `most_bytes` of each.

    `deadline` is on the monotonic clock. Raises TimeoutError.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    collected = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    pidfd = os.pidfd_open(process.pid)
    ended_at: float | None = None
    try:
        with selectors.DefaultSelector() as selector:
            for fd in (*collected, pidfd):
                selector.register(fd, selectors.EVENT_READ)
            while selector.get_map():
                if ended_at is not None and time.monotonic() > ended_at + DRAIN_S:
                    break
                for key, _ in selector.select(_wait_s(deadline, ended_at)):
                    if key.fd == pidfd:
                        ended_at = time.monotonic()
                        selector.unregister(pidfd)
                    elif chunk := os.read(key.fd, 65536):
                        room = most_bytes - len(collected[key.fd])
                        collected[key.fd] += chunk[: max(0, room)]
                    else:
                        selector.unregister(key.fd)
                if deadline is not None and ended_at is None and time.monotonic() > deadline:
                    raise TimeoutError
    finally:
        os.close(pidfd)
    stdout, stderr = collected.values()
    return bytes(stdout), bytes(stderr)


def _wait_s(deadline: float | None, ended_at: float | None) -> float | None:
    ends = [end for end in (deadline, None if ended_at is None else ended_at + DRAIN_S) if end is not None]
    return min(LONGEST_WAIT_S, max(0.0, min(ends) - time.monotonic())) if ends else None
