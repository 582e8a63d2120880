"""Runs runc's `exec --detach`, and waits for the command that it leaves, as for a child.

Without --detach runc gives the command pipes of its own. These have the SELinux label of runc's domain, which a
container may not write to. Source: setupIO of runc's utils_linux.go.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
from collections.abc import Sequence

from actors.runtime.helper.kernel import syscalls

START_S = 50.0
"""Time limit of runc. The runtime kills this process after 60 s without a pid file, and runc would go on alone."""


def run_detached(pid_file: str, line: Sequence[str]) -> int:
    """Return the exit code: the command's, or runc's after a failed start. Raises OSError, ValueError.

    `line` makes runc write the command's pid to `pid_file` with `.tmp` at its end. The file gets its name once the
    command is our child: a reader takes no other process for it.
    """
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    code = _start(line)
    if code != 0:
        return code
    unfinished = f"{pid_file}.tmp"
    with open(unfinished, encoding="ascii") as file:
        pid = int(file.read())
    try:
        os.rename(unfinished, pid_file)
    except OSError:  # the runtime would never learn the command's pid, and could not end it
        os.kill(pid, signal.SIGKILL)
        raise
    return _wait(pid)


def _start(line: Sequence[str]) -> int:
    """Run runc; return its exit code. It alone is reaped: a short command has ended before it."""
    starter = os.posix_spawn(line[0], list(line), os.environ)
    descriptor = os.pidfd_open(starter)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(START_S * 1000):
            with contextlib.suppress(ProcessLookupError):
                os.kill(starter, signal.SIGKILL)
            raise OSError(errno.ETIMEDOUT, f"the OCI runtime has not started the command within {START_S:g} s")
    finally:
        os.close(descriptor)
    return _exit_code(os.waitpid(starter, 0)[1])


def _wait(pid: int) -> int:
    """Its exit code. Descendants that become our children meanwhile, as in the machine's pid namespace, are reaped."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return _exit_code(status)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
