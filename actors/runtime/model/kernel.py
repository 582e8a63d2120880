"""Runs functions in a sandbox's namespaces, by system calls that Python 3.11 has no function for.

Network, ipc and uts namespaces and the working directory belong to a thread. A short-lived thread does what otherwise
takes a process.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

CLONE_FS = 0x00000200
CLONE_NEW = {"network": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000}
"""Flags of unshare(2) by OCI's name of the namespace."""
PROC_NAMES = {"network": "net", "ipc": "ipc", "uts": "uts", "pid": "pid"}
"""Name in /proc/PID/ns by OCI's name."""


def unshare(flags: int) -> None:
    """Move this thread to new namespaces. Raises OSError."""
    _check(_libc().unshare(flags))


def setns(fd: int) -> None:
    """Move this thread into the namespace of descriptor `fd`. Raises OSError."""
    _check(_libc().setns(fd, 0))


def in_thread(function: Callable[[], T]) -> T:
    """Run the function in a new thread that ends with it; return its result or raise its exception."""
    result: list[Any] = []

    def work() -> None:
        try:
            result.append((function(), None))
        except BaseException as error:
            result.append((None, error))

    thread = threading.Thread(target=work, name="namespace", daemon=True)
    thread.start()
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    answer: T = value
    return answer


def in_namespace(path: str, function: Callable[[], T]) -> T:
    """Run the function in the network, ipc or uts namespace pinned at `path`."""

    def work() -> T:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(fd)
        finally:
            os.close(fd)
        return function()

    return in_thread(work)


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _check(code: int) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
