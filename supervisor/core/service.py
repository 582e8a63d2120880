"""The agent as a service of its host: sd_notify, the healthz port, the lock file and the locks on its directories.

Called from the daemon's loop; nothing here blocks. `host_setup` has taken the lock file before.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping

from proto.common import logs
from proto.wire.message import Message
from supervisor.health.checks import Health
from supervisor.health.healthz import Healthz, Sources
from supervisor.health.notify import Notifier
from supervisor.ownership.held_claims import HeldClaims

log = logging.getLogger(__name__)

RESEND_S, RESEND_MAX_S = 0.1, 5.0
"""Delay before a failed notification is repeated; it doubles. Without READY=1 a start fails."""


class AgentService:
    """Sends READY=1 once every actor has been ready, and WATCHDOG=1 while the loop runs. Ends on lock contention."""

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
        """With `lock_file`, another process that opens or deletes it ends the agent (--exit-on-lock-contention).

        `healthz` is the server's address and port, `configuration` the JSON of /configz. `names` are the host names
        that its clients may use.
        """
        self._notifier = notifier
        self.claims = claims
        self._health = Health(actors, time.monotonic())
        sources = Sources(lambda: self._health.checks(time.monotonic()), configuration, names)
        self._healthz = Healthz(*healthz, sources) if healthz else None
        self._ready = self._stopping = False
        self._next_watchdog = 0.0
        self._unsent: tuple[str, ...] = ()
        """The newest notification that was not taken. It replaces older ones: a stopping agent is not ready."""
        self._resend_at, self._resend_s = 0.0, RESEND_S
        self._lock_file = lock_file
        self.fds = [_watch(lock_file)] if lock_file else []
        """Descriptors to poll for input."""
        if self._healthz:
            self.fds.append(self._healthz.fd)

    def on_event(self, event: Message) -> None:
        """Note which actors are ready or have been."""
        self._health.on_event(event, time.monotonic())
        if not self._ready and not self._health.never_ready:
            self._ready = True
            self._send("READY=1", f"STATUS=all actors in service, pid {os.getpid()}")

    def _send(self, *lines: str) -> None:
        """Send now, or again as soon as the service manager takes it."""
        self._resend_s = min(2 * self._resend_s, RESEND_MAX_S) if lines == self._unsent else RESEND_S
        self._unsent = () if self._notifier.send(*lines) else lines
        self._resend_at = time.monotonic() + self._resend_s

    @property
    def variables(self) -> Mapping[str, str]:
        """The service manager's variables of the environment, for a next self of this process."""
        return self._notifier.variables

    def on_input(self, fd: int) -> bool:
        """Handle input; True when the agent must end."""
        if self._healthz and fd == self._healthz.fd:
            self._healthz.serve()
            return False
        os.read(fd, 4096)
        log.log(logs.NOTICE, "another process opened or removed lock file %s: stopping", self._lock_file)
        return True

    def deadline(self) -> float | None:
        """The monotonic time of the next `tick`; None for none."""
        due = [self._next_watchdog] if self._notifier.period_s else []
        if self._unsent:
            due.append(self._resend_at)
        if self._healthz and self._healthz.retry_at != math.inf:
            due.append(self._healthz.retry_at)
        return min(due, default=None)

    def tick(self, now: float, stopping: bool) -> None:
        """Send notifications that are due, and check the claims."""
        if stopping and not self._stopping:
            self._stopping = True
            self._send("STOPPING=1")
        elif self._unsent and now >= self._resend_at:
            self._send(*self._unsent)
        if self._notifier.period_s and now >= self._next_watchdog:
            self._next_watchdog = now + self._notifier.period_s
            self._notifier.send("WATCHDOG=1")  # not repeated: the next one follows in time
        if self._healthz and now >= self._healthz.retry_at:
            self._healthz.listen(now)
        if self.claims is not None:
            self.claims.tick(now)


def _watch(path: str) -> int:
    """Return a descriptor that becomes readable when the file is opened or removed. Raises OSError."""
    from inotify_simple import INotify, flags  # noqa: PLC0415 - loads ctypes; most agents have no lock file

    watcher = INotify()
    watcher.add_watch(path, flags.OPEN | flags.DELETE_SELF)
    return int(os.dup(watcher.fileno()))
