"""Limits of streaming sessions: descriptors and waiting bytes, of one session and of all.

The process of the sessions serves all containers, so a client of one pod must not take all of its memory or files.
Everything is used in the thread of the sessions' loop.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass, field

from actors._base.messaging.futures import Future

MOST_DESCRIPTORS = 2048
"""Descriptors of all sessions together: 256 commands, or 6 browsers that use all connections they may."""
PER_SESSION = 8
"""A session's socket, and for a command its pipes, terminal, pidfd and what its start has open."""
MOST_PAIRS = 256
"""Connections of one port-forward session at once. Chrome opens at most 256 in all; kubectl has no limit of its own.

Pairs that lack a stream count too. kubectl opens both streams of all its new connections side by side.
"""
MOST_PORTS = 128
"""Ports of a WebSocket session. Each has two channels, and a channel's number is one byte."""
MOST_NAME = 128
"""Characters of a request ID. kubectl counts from 0."""
MOST_WAITING = 1024 * 1024
"""Bytes that one connection's pod has not taken, or that come before a command's streams. The client's whole session
then waits, as SPDY has one flow."""
SESSION_WAITING = 4 * MOST_WAITING
"""The same for all connections of a session."""
ALL_WAITING = 64 * MOST_WAITING
"""The same for all sessions. From there on each may only have A_LITTLE, so a greedy one blocks no other."""
A_LITTLE = 64 * 1024
PART = 64
"""Bytes that Python takes for a part besides its content."""


class Descriptors:
    """Counts the descriptors of all sessions."""

    def __init__(self, most: int = MOST_DESCRIPTORS) -> None:
        """At most half of the process's limit is used: containers and images need descriptors, too."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = self.free = most if soft == resource.RLIM_INFINITY else min(most, soft // 2)

    def take(self, count: int) -> bool:
        """Take this many; False when there are too few."""
        if self.free < count:
            return False
        self.free -= count
        return True

    def take_for_pair(self) -> bool:
        """Take one for a forwarded connection. A quarter is left for new sessions."""
        return self.free > self._most // 4 and self.take(1)

    def give(self, count: int) -> None:
        """Give back."""
        self.free += count


class Waiting:
    """Counts the bytes that wait in all sessions."""

    def __init__(self) -> None:
        self.bytes = 0


@dataclass
class Limits:
    """The counters of all sessions together."""

    descriptors: Descriptors = field(default_factory=Descriptors)
    waiting: Waiting = field(default_factory=Waiting)


class Room:
    """The bytes that wait in one session."""

    def __init__(self, all_sessions: Waiting) -> None:
        self._all = all_sessions
        self._bytes = 0
        self._changed: Future[None] = Future()

    @property
    def full(self) -> bool:
        """True when the session has to wait. It may go on once its own pods take bytes."""
        return self._bytes >= (SESSION_WAITING if self._all.bytes < ALL_WAITING else A_LITTLE)

    def add(self, count: int) -> None:
        """Count bytes that begin to wait."""
        self._bytes += count
        self._all.bytes += count

    def remove(self, count: int) -> None:
        """Count bytes that wait no more, and wake the session's reader."""
        self.add(-count)
        changed, self._changed = self._changed, Future()
        changed.set(None)

    def change(self) -> Future[None]:
        """Await this for the next removal."""
        return self._changed
