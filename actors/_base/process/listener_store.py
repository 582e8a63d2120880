"""Listening sockets that outlive an incarnation: what a killed actor listened on, the next one takes over.

They wait in the kernel, in a packet that nobody reads, between two ends of a socket pair that the forkserver makes
before its first fork and never uses. So clients that come while there is no incarnation wait, too, and are not refused.
Where the forkserver had to be replaced meanwhile there is nothing to take over, and ports are opened anew.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping

MOST = 16
_NAMES_BYTES = 4096


class ListenerStore:
    """What is kept: at most one packet of sockets by their names."""

    def __init__(self) -> None:
        self._in, self._out = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._out.setblocking(False)
        self._in.setblocking(False)

    def take(self) -> dict[str, socket.socket]:
        """Everything, out of it."""
        found: dict[str, socket.socket] = {}
        while True:
            try:
                names, descriptors, _, _ = socket.recv_fds(self._out, _NAMES_BYTES, MOST, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return found
            sockets = (socket.socket(fileno=descriptor) for descriptor in descriptors)
            found |= dict(zip(json.loads(names), sockets, strict=True))

    def put(self, sockets: Mapping[str, socket.socket]) -> None:
        """Keep these, and nothing else. Who is killed in between keeps nothing. Raises OSError."""
        for old in self.take().values():
            old.close()
        if sockets:
            descriptors = [one.fileno() for one in sockets.values()]
            socket.send_fds(self._in, [json.dumps(list(sockets)).encode()], descriptors)

    def close(self) -> None:
        """Let go of it: what is kept stays with the others that have it."""
        self._in.close()
        self._out.close()


USERS = frozenset(("server",))
_store: ListenerStore | None = None


def make() -> None:
    """In the forkserver, for its children to have."""
    global _store  # noqa: PLW0603 - a child has it by the fork, and by nothing else
    _store = ListenerStore()


def close_unless_used_by(actor: str) -> None:
    """In a child. Who keeps nothing lets go of it: whoever has it has the ports that are kept in it, and they must be
    free once all that serve them are gone."""
    global _store  # noqa: PLW0603
    if _store is not None and actor not in USERS:
        _store.close()
        _store = None


def current() -> ListenerStore | None:
    """What this incarnation may take over, and keep for the next one; None outside of an agent."""
    return _store
