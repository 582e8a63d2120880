"""The threads of a gRPC server, which outlive a moment in which no thread can be started."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)
PLACES = 2
"""Held for a serving thread. The kernel counts a thread for a moment after its end."""
_not_started: list[Any] = []


@contextmanager
def room_for_thread() -> Iterator[Callable[[], None]]:
    """Hold a place for a server's serving thread until the function that this yields is called.

    A server whose serving thread cannot start leaves its sockets, also when it is stopped. So this comes before it is
    made. Raises RuntimeError when no thread can be started.
    """
    free = threading.Event()
    holders: list[threading.Thread] = []

    def release() -> None:
        free.set()
        for holder in holders:
            holder.join()

    try:
        for _ in range(PLACES):
            holder = threading.Thread(target=free.wait, name="holds a place", daemon=True)
            holder.start()
            holders.append(holder)
        yield release
    finally:
        release()


def start_server(server: Any) -> None:
    """Start a grpc.Server. Raises RuntimeError when its serving thread cannot be started.

    Such a server is kept: its deallocation would wait for that thread for ever, with the interpreter's lock.
    """
    try:
        server.start()
    except RuntimeError:
        _not_started.append(server)
        raise


class RpcThreads(ThreadPoolExecutor):
    """Threads that start as calls need them, and stay. A call that gets no thread waits for one.

    gRPC submits each call in its one serving thread (grpc/_server.py). An exception would end that thread, and with it
    the answers to all later calls. The limit of threads is that of the machine, the user or the cgroup.
    """

    def __init__(self, most: int, name: str) -> None:
        """`most`: the largest number of threads. Raises RuntimeError when the first one cannot be started."""
        super().__init__(most, thread_name_prefix=name)
        self._lacking = 0
        """Calls that were queued without a thread of their own."""
        self.submit(int)  # with a thread, each queued call runs in the end

    def _adjust_thread_count(self) -> None:
        """Start threads for the call that was queued now, and for those without one. `submit` has the lock."""
        self._lacking += 1
        try:
            while self._lacking:
                super()._adjust_thread_count()
                self._lacking -= 1
        except RuntimeError as error:
            if not self._threads:
                raise
            if self._lacking == 1:
                log.error("cannot start a thread for a call: %s; calls wait for the threads that there are", error)
