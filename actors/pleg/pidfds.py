"""Process exits as events: a pidfd for each process, behind one epoll descriptor that the bus watches.

With the pidfds registered at the bus itself, each of its poll calls would take time in proportion to their number.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

from actors._base.messaging.bus import Bus

_MOST_AT_ONCE = 512


class Pidfds:
    """Open pidfds. `open`, `close` and `has_ended` are for the actor's thread only."""

    def __init__(self, bus: Bus, on_readable: Callable[[list[int]], None]) -> None:
        """`on_readable` gets pidfds of ended processes in the I/O thread; post them, then check `has_ended`."""
        self._epoll = select.epoll()
        self._on_readable = on_readable
        bus.watch_fd(self._epoll.fileno(), self._take)

    def _take(self) -> None:
        # One-shot, since an ended process stays readable and the bus would spin until its pidfd is closed.
        if ready := self._epoll.poll(0, _MOST_AT_ONCE):
            self._on_readable([fd for fd, _ in ready])

    def open(self, pid: int) -> int:
        """Open a pidfd. Raises ProcessLookupError without such a process, OSError on failure."""
        fd = os.pidfd_open(pid)
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
        return fd

    def close(self, fd: int) -> None:
        """Close a pidfd; its number may be reused from now on."""
        os.close(fd)

    @staticmethod
    def has_ended(fd: int) -> bool:
        """True when the process has ended; a report may concern an earlier pidfd with this number."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))
