"""Notifies the service manager, sd_notify(3): READY=1, STOPPING=1, and WATCHDOG=1 while the loop runs.

Sends nothing unless the service manager asks by NOTIFY_SOCKET and WATCHDOG_USEC (systemd's Type=notify, WatchdogSec=).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import MutableMapping

log = logging.getLogger(__name__)


class Notifier:
    """The service manager's socket. Removes its variables from the environment, so that children do not have them."""

    def __init__(self, environment: MutableMapping[str, str], pid: int) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        watched, period = environment.pop("WATCHDOG_PID", str(pid)), environment.pop("WATCHDOG_USEC", "")
        self.period_s = 0.0
        """Between two WATCHDOG=1: half of the allowed time. 0: none are requested."""
        if self._address and watched == str(pid) and period.isdecimal():
            self.period_s = int(period) / 2e6

    def send(self, *lines: str) -> bool:
        """Send assignments such as READY=1. False when the service manager's socket is full: send again later.

        Never blocks. After any other error nothing more is sent; it is logged once.
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
