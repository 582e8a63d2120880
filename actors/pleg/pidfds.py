"""Process exits as events: one pidfd for each process, all behind one epoll descriptor that the bus watches.

Registering the pidfds with the bus itself would make each of its poll calls as long as their number. Not here: whose
processes they are.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

from actors._base.messaging.bus import Bus

_MOST_AT_ONCE = 512


class Pidfds:
    """Open pidfds. `open`, `close` and `has_ended` are for one thread, the actor's."""

    def __init__(self, bus: Bus, on_readable: Callable[[list[int]], None]) -> None:
        """`on_readable` gets the pidfds of ended processes, from the I/O thread: hand on, then ask `has_ended`."""
        self._epoll = select.epoll()
        self._on_readable = on_readable
        bus.watch_fd(self._epoll.fileno(), self._take)

    def _take(self) -> None:
        # One-shot: an ended process stays readable, and the bus would spin until the actor has closed its pidfd.
        if ready := self._epoll.poll(0, _MOST_AT_ONCE):
            self._on_readable([fd for fd, _ in ready])

    def open(self, pid: int) -> int:
        """A pidfd of the process. Raises ProcessLookupError when there is none, OSError when there can be none."""
        fd = os.pidfd_open(pid)
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
        return fd

    def close(self, fd: int) -> None:
        """Stop watching; the number may mean another process from now on."""
        os.close(fd)

    @staticmethod
    def has_ended(fd: int) -> bool:
        """Whether the process of this pidfd is over: a report may be of an earlier owner of the number."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))
