"""Keeps listening sockets beyond an incarnation, so that the next one takes them over and clients are not refused.

The sockets wait in the kernel, in an unread packet between two ends of a socket pair. The supervisor makes the pair,
and each forkserver gets it. Clients that connect meanwhile wait in the sockets' queues.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence

MAX_SOCKETS = 16
_NAMES_BYTES = 4096


class ListenerStore:
    """The stored sockets by their names, in one packet at most."""

    def __init__(self, pair: Sequence[int] = ()) -> None:
        """With the descriptors of a pair, which it then owns; else with a pair of its own."""
        ends = [socket.socket(fileno=descriptor) for descriptor in pair]
        self._in, self._out = ends or socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._out.setblocking(False)
        self._in.setblocking(False)

    def take(self) -> dict[str, socket.socket]:
        """Remove and return all sockets."""
        found: dict[str, socket.socket] = {}
        while True:
            try:
                names, descriptors, _, _ = socket.recv_fds(
                    self._out, _NAMES_BYTES, MAX_SOCKETS, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return found
            sockets = (socket.socket(fileno=descriptor) for descriptor in descriptors)
            found |= dict(zip(json.loads(names), sockets, strict=True))

    def put(self, sockets: Mapping[str, socket.socket]) -> None:
        """Replace the stored sockets. A kill in between leaves none stored. Raises OSError."""
        for old in self.take().values():
            old.close()
        if sockets:
            descriptors = [one.fileno() for one in sockets.values()]
            socket.send_fds(self._in, [json.dumps(list(sockets)).encode()], descriptors)

    def close(self) -> None:
        """Close this process's ends. The sockets stay stored while another process has the pair."""
        self._in.close()
        self._out.close()


USERS = frozenset(("server",))
"""Actors that store sockets."""
_store: ListenerStore | None = None


def make(pair: Sequence[int] = ()) -> None:
    """Make the store in the forkserver, for its children."""
    global _store  # noqa: PLW0603 - children get it by the fork alone
    _store = ListenerStore(pair)


def close_unless_used_by(actor: str) -> None:
    """Close the store in a child that does not use it. Its ports stay in use while any process has it, and must be free
    once their servers have ended."""
    global _store  # noqa: PLW0603
    if _store is not None and actor not in USERS:
        _store.close()
        _store = None


def current() -> ListenerStore | None:
    """The store of this process; None outside of an agent."""
    return _store
