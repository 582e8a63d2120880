"""Waits for sockets by one epoll descriptor on the bus, and calls back in the actor's thread."""

from __future__ import annotations

import select
from collections.abc import Callable

from actors._base.messaging.bus import Bus

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
_MAX_AT_ONCE = 256


class Poller:
    """Calls a callback once when its descriptor is ready. A spurious call is possible: the readiness may be that of a
    closed socket with the same number."""

    def __init__(self, bus: Bus, post: Callable[..., None]) -> None:
        """`post(function, *args)` runs a function in the actor's thread."""
        self._epoll = select.epoll()
        self._post = post
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._known: set[int] = set()
        bus.watch_fd(self._epoll.fileno(), self._take)

    def __len__(self) -> int:
        return len(self._callbacks)

    def _take(self) -> None:
        # One-shot: a socket stays ready until the actor's thread has run, and the I/O loop would spin meanwhile.
        if ready := self._epoll.poll(0, _MAX_AT_ONCE):
            self._post(self._step, [fd for fd, _ in ready])

    def _step(self, ready: list[int]) -> None:
        for fd in ready:
            callback = self._callbacks.pop(fd, None)
            if callback is not None:
                callback()

    def wait(self, fd: int, event: int, callback: Callable[[], None]) -> None:
        """Call once in the actor's thread when `fd` is ready for `event`, or broken."""
        self._callbacks[fd] = callback
        if fd in self._known:
            self._epoll.modify(fd, event | select.EPOLLONESHOT)
        else:
            self._known.add(fd)
            self._epoll.register(fd, event | select.EPOLLONESHOT)

    def forget(self, fd: int) -> None:
        """Drop the descriptor's callback. The caller closes the descriptor afterwards."""
        self._callbacks.pop(fd, None)
        self._known.discard(fd)
