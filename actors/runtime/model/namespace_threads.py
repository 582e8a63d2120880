"""Runs functions in a sandbox's namespaces, each in a short-lived thread.

Network, ipc and uts namespaces and the working directory belong to a thread, so a thread can enter
others. Python 3.11 has no function for setns(2).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from actors.runtime.helper.kernel.syscalls import setns_of

T = TypeVar("T")

CLONE_FS = 0x00000200
PROC_NAMES = {"network": "net", "ipc": "ipc", "uts": "uts", "pid": "pid", "user": "user"}
"""Name in /proc/PID/ns by OCI's name."""


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
            setns_of(fd, path)
        finally:
            os.close(fd)
        return function()

    return in_thread(work)
