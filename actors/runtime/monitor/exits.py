"""Reads exit codes: as a subreaper, and from the pidfd of a process that is not a child."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time

UNKNOWN = 255
"""Exit code of a container whose parent was killed, as in containerd."""
ADOPTION_S = 0.5
"""Longest wait for a running process to become a child."""
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3


def exit_code(pidfd: int) -> int | None:
    """The exit code as os.waitstatus_to_exitcode has it, or UNKNOWN; None before the process is reaped: ask again.

    Linux reports it since 6.15 (pidfd_open(2), PIDFD_GET_INFO).
    """
    info = bytearray(64)
    info[0] = _PIDFD_INFO_EXIT
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError as error:
        return None if error.errno == errno.ESRCH else UNKNOWN
    if not info[0] & _PIDFD_INFO_EXIT:
        return None
    return os.waitstatus_to_exitcode(int.from_bytes(info[60:64], sys.byteorder))


def is_child(pid: int) -> bool:
    """Return True while the process runs or waits to be reaped; False once it is gone, or is not a child.

    A process of an OCI runtime that has just ended may become a child a moment later, on a loaded machine with Linux
    6.12. It is waited for: a container that is taken for ended would run on unseen.
    """
    until = time.monotonic() + ADOPTION_S
    while True:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return True
        except ChildProcessError:
            if not os.path.exists(f"/proc/{pid}") or time.monotonic() > until:
                return False
        time.sleep(0.001)


def become_subreaper() -> None:
    """prctl(PR_SET_CHILD_SUBREAPER), for which Python has no function."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
