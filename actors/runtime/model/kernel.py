"""System calls that Python 3.11 has no function for, and threads that leave the process's namespaces for a moment.

net, ipc and uts namespaces and the working directory are a thread's own if it wants: a thread that ends afterwards does
what otherwise takes a process.
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
"""By OCI's name of the kind."""
PROC_NAMES = {"network": "net", "ipc": "ipc", "uts": "uts", "pid": "pid"}
"""OCI's name of a kind to that in /proc/PID/ns."""


def unshare(flags: int) -> None:
    """Leave what these flags name, for this thread. Raises OSError."""
    _check(_libc().unshare(flags))


def setns(fd: int) -> None:
    """Enter the namespace behind `fd`, for this thread. Raises OSError."""
    _check(_libc().setns(fd, 0))


def in_thread(function: Callable[[], T]) -> T:
    """Run it in a thread that ends with it; its result, or its exception."""
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
    """Run it in the network (ipc, uts) namespace that is pinned at `path`."""

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
