"""Messages to the service manager, sd_notify(3): READY=1, STOPPING=1, and WATCHDOG=1 for as long as the loop turns.

Does nothing where nobody asked for them (NOTIFY_SOCKET, WATCHDOG_USEC; systemd's Type=notify and WatchdogSec=).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

log = logging.getLogger(__name__)


class Notifier:
    """One service manager's socket. Takes its variables out of the environment: they are not for children."""

    def __init__(self, environment: MutableMapping[str, str], pid: int) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        watched, period = environment.pop("WATCHDOG_PID", str(pid)), environment.pop("WATCHDOG_USEC", "")
        self.period_s = 0.0
        """Between two WATCHDOG=1: half of what is allowed. 0: none are wanted."""
        if self._address and watched == str(pid) and period.isdecimal():
            self.period_s = int(period) / 2e6

    def send(self, *lines: str) -> bool:
        """Send assignments such as READY=1; False: the manager is behind, another time it may take them.

        Never blocks. Where there is no manager, or none any more, there is nothing to send: that is logged once.
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
            log.warning("cannot notify the service manager at %s: %s", self._address, error.strerror)
            self._address = ""
        return True


def from_environment() -> Notifier:
    """The service manager of this process."""
    return Notifier(os.environ, os.getpid())
