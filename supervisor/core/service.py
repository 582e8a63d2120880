"""What the agent's parent does besides its children: the service manager, the healthz port, giving way on a lock file.

Called from the daemon's loop; nothing here blocks. How each thing is done is in `notify`; the lock is taken before
(`hostduties`).
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable

from proto.agent.supervisor import Exited, Started, World
from proto.common import logs
from proto.wire.message import Message
from supervisor.health.checks import Health
from supervisor.health.healthz import Healthz, Sources
from supervisor.health.notify import Notifier
from supervisor.ownership.start_check import HeldClaims

log = logging.getLogger(__name__)

SAY_AGAIN_S = 0.1
"""What a service manager had no room for is said again: without READY=1 it takes the start for failed."""


class AgentService:
    """READY=1 once every actor has been in service, WATCHDOG=1 while the loop turns, and an end by lock contention."""

    def __init__(
        self,
        notifier: Notifier,
        actors: Iterable[str],
        lock_file: str = "",
        healthz: tuple[str, int] | None = None,
        configuration: Callable[[], str] | None = None,
        claims: HeldClaims | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        """With `lock_file`, somebody opening or deleting that file ends the agent (--exit-on-lock-contention).

        `healthz` is the address and port to say on how the actors are, and what the configuration is (healthz.Sources).
        `names` are the machine's, that its clients may use.
        """
        self._notifier = notifier
        self._claims = claims
        self._missing: set[str] = set(actors)
        self._health = Health(self._missing, time.monotonic())
        sources = Sources(lambda: self._health.checks(time.monotonic()), configuration, names)
        self._healthz = Healthz(*healthz, sources) if healthz else None
        self._ready = self._stopping = False
        self._next_watchdog = 0.0
        self._unsaid: tuple[str, ...] = ()
        """What the manager is still to be told. The last is all that counts: who stops is not ready."""
        self._say_again = 0.0
        self._lock_file = lock_file
        self.fds = [_watch(lock_file)] if lock_file else []
        """To be watched for input."""
        if self._healthz:
            self.fds.append(self._healthz.fd)

    def on_event(self, event: Message) -> None:
        """Keep account of who is in service, and who has been."""
        self._health.on_event(event, time.monotonic())
        if self._ready or isinstance(event, Exited):
            return
        if isinstance(event, Started):
            self._missing.discard(event.name)
        elif isinstance(event, World):
            self._missing -= {peer.name for peer in event.peers if peer.ready}
        if not self._missing:
            self._ready = True
            self._say("READY=1", f"STATUS=all actors in service, pid {os.getpid()}")

    def _say(self, *lines: str) -> None:
        """Now, or as soon as the manager takes it."""
        self._unsaid = () if self._notifier.send(*lines) else lines
        self._say_again = time.monotonic() + SAY_AGAIN_S

    def on_input(self, fd: int) -> bool:
        """Take what came; True when the agent has to end."""
        if self._healthz and fd == self._healthz.fd:
            self._healthz.serve()
            return False
        os.read(fd, 4096)
        log.log(logs.NOTICE, "lock file %s was opened or removed by somebody else, giving way", self._lock_file)
        return True

    def deadline(self) -> float | None:
        """When `tick` wants to be called, on the monotonic clock."""
        due = [self._next_watchdog] if self._notifier.period_s else []
        if self._unsaid:
            due.append(self._say_again)
        if self._healthz and self._healthz.retry_at != math.inf:
            due.append(self._healthz.retry_at)
        return min(due, default=None)

    def tick(self, now: float, stopping: bool) -> None:
        """Say what is due."""
        if stopping and not self._stopping:
            self._stopping = True
            self._say("STOPPING=1")
        elif self._unsaid and now >= self._say_again:
            self._say(*self._unsaid)
        if self._notifier.period_s and now >= self._next_watchdog:
            self._next_watchdog = now + self._notifier.period_s
            self._notifier.send("WATCHDOG=1")  # one that is not taken is made up for by the next
        if self._healthz and now >= self._healthz.retry_at:
            self._healthz.listen(now)
        if self._claims is not None:
            self._claims.tick(now)


def _watch(path: str) -> int:
    """A descriptor that becomes readable when somebody opens or removes the file. Raises OSError."""
    from inotify_simple import INotify, flags  # noqa: PLC0415 - loads ctypes; most agents have no lock file

    watcher = INotify()
    watcher.add_watch(path, flags.OPEN | flags.DELETE_SELF)
    return int(os.dup(watcher.fileno()))
