"""Runs runc's `exec --detach`, and waits for the command that it leaves, as for a child.

Without --detach runc gives the command pipes of its own. These have the SELinux label of runc's domain, which a
container may not write to. Source: setupIO of runc's utils_linux.go.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from actors.runtime.helper.kernel import syscalls


def run_detached(pid_file: str, line: Sequence[str]) -> int:
    """Return the exit code: the command's, or runc's after a failed start. Raises OSError, ValueError.

    `line` makes runc write the command's pid to `pid_file` with `.tmp` at its end. The file gets its name once the
    command is our child: a reader takes no other process for it.
    """
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    starter = os.posix_spawn(line[0], list(line), os.environ)
    code = _wait(starter)
    if code != 0:
        return code
    unfinished = f"{pid_file}.tmp"
    with open(unfinished, encoding="ascii") as file:
        pid = int(file.read())
    os.rename(unfinished, pid_file)
    return _wait(pid)


def _wait(pid: int) -> int:
    """Its exit code. Descendants that become our children meanwhile, as in the machine's pid namespace, are reaped."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
