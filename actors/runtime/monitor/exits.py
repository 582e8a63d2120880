"""Reads exit codes: as a subreaper, and from the pidfd of a process that is not a child."""

from __future__ import annotations

import errno
import fcntl
import os
import sys

UNKNOWN = 255
"""Exit code of a container whose parent was killed, as in containerd."""
ADOPTION_S = 30.0
"""Longest wait for a descendant to become a child. Less than ANSWER_S of the monitor's client."""
MOST_ANCESTORS = 100
"""Limit of the steps from a process to its ancestors. With hidepid, the machine may hide one for ever (proc(5))."""
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


def is_child(pid: int) -> bool | None:
    """Return True for a child, which may have exited; None for a descendant that may become one; False for others.

    A process of an OCI runtime that has just ended may become a child a moment later, on a loaded machine with Linux
    6.12. It is waited for: a container that is taken for ended would run on unseen.
    """
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        pass
    try:
        return None if _descends(pid) else False
    except OSError:  # as for want of descriptors: it may run
        return None


def _descends(pid: int) -> bool:
    """Return True when this process is an ancestor of the process, or may be one. Raises OSError."""
    at = _parent(pid)
    for _ in range(MOST_ANCESTORS):
        if at <= 1 or at == os.getpid():
            return at == os.getpid()
        above = _parent(at)
        at = above if above >= 0 else _parent(pid)  # that ancestor has ended, and its children have another parent
    return True


def _parent(pid: int) -> int:
    """Field 4 of /proc/PID/stat; -1 for an ended process, or another user's that is hidden. Raises OSError."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return int(file.read(4096).rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return -1


def become_subreaper() -> None:
    """prctl(PR_SET_CHILD_SUBREAPER), for which Python has no function."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
