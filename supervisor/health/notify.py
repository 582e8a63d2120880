"""Notifies the service manager, sd_notify(3): READY=1, STOPPING=1, and WATCHDOG=1 while the loop runs.

Sends nothing unless the service manager asks by NOTIFY_SOCKET and WATCHDOG_USEC (systemd's Type=notify, WatchdogSec=).
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import MutableMapping

log = logging.getLogger(__name__)

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
_ENDED = (errno.ENOENT, errno.ECONNREFUSED, None)
"""Errors of a service manager that is gone; None: the path is too long for a socket."""


class Notifier:
    """The service manager's socket. Removes its variables from the environment, so that children do not have them."""

    def __init__(self, environment: MutableMapping[str, str], pid: int) -> None:
        self.variables = {name: environment.pop(name) for name in VARIABLES if name in environment}
        """The removed variables, for a next self of this process."""
        self._address = self.variables.get("NOTIFY_SOCKET", "")
        watched, period = self.variables.get("WATCHDOG_PID", str(pid)), self.variables.get("WATCHDOG_USEC", "")
        self._failed = False
        self.period_s = 0.0
        """Between two WATCHDOG=1: half of the allowed time. 0: none are requested."""
        if self._address and watched == str(pid) and period.isdecimal():
            self.period_s = int(period) / 2e6

    def send(self, *lines: str) -> bool:
        """Send assignments such as READY=1. False after a failure that may pass: send again later.

        Never blocks. A service manager that is gone gets nothing more. Errors are logged once until a send succeeds.
        """
        if not self._address:
            return True
        # A leading @ stands for the abstract namespace.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), address)
        except BlockingIOError:
            return False
        except OSError as error:
            if not self._failed:
                log.warning("cannot notify the service manager at %s: %s", self._address, error)
            self._failed = True
            if error.errno not in _ENDED:
                return False
            self._address = ""
            return True
        self._failed = False
        return True
