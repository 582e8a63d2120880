"""systemd-logind: a lock that delays the machine's shutdown, and word of when one begins.

A thread of its own blocks on the system bus. Source: https://systemd.io/INHIBITOR_LOCKS/ and
https://www.freedesktop.org/software/systemd/man/org.freedesktop.login1.html.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors.node.shutdown_policy import logind_drop_in

log = logging.getLogger(__name__)

RECONNECT_S = 5.0
CALL_S = 25.0
DROP_IN = Path("/etc/systemd/logind.conf.d/99-kubelet.conf")
"""The kubelet's own name for it: a node that changes between the two has one file, not two."""
RELOADED_S = 5.0
NAME, PATH = "org.freedesktop.login1", "/org/freedesktop/login1"
MANAGER = "org.freedesktop.login1.Manager"


class LogindError(Exception):
    """It cannot be used as it is; the message says why, and what would help."""


class Logind:
    """The lock, held from `start` on and taken anew whenever the bus was away. Called back in its own thread."""

    def __init__(
        self, delay_s: float, on_shutdown: Callable[[bool, int], None], on_state: Callable[[str], None]
    ) -> None:
        """`on_shutdown` is told of a shutdown's beginning (True) and of one that is called off, with the number of the
        lock as it is now; `on_state` why the lock is not held, empty when it is."""
        self._delay_s, self._on_shutdown, self._on_state = delay_s, on_shutdown, on_state
        self._lock = threading.Lock()
        self._held: int | None = None
        self._number = 0
        """How many locks have been taken."""

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="logind", daemon=True).start()

    def release(self, number: int) -> None:
        """Let the machine go down, as far as lock `number` delays it: one that was taken since is for the next time."""
        with self._lock:
            if number == self._number:
                self._let_go()

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def follow(self) -> None:
        """One connection, until it breaks. Raises DBusErrorResponse, LogindError, OSError, KeyError, ValueError,
        EOFError."""
        from jeepney import MatchRule, message_bus  # noqa: PLC0415
        from jeepney.io.blocking import open_dbus_connection  # noqa: PLC0415

        with open_dbus_connection("SYSTEM", enable_fds=True) as bus:
            rule = MatchRule(type="signal", interface=MANAGER, member="PrepareForShutdown", path=PATH)
            _ask(bus, message_bus.AddMatch(rule))
            with bus.filter(rule, bufsize=16) as signals:
                self._see_to_delay(bus)
                self._take(bus)
                if _property(bus, "PreparingForShutdown"):
                    self._on_shutdown(True, self._number)
                while True:
                    begins = bool(bus.recv_until_filtered(signals).body[0])
                    if not begins:
                        self._take(bus)
                    self._on_shutdown(begins, self._number)

    def _run(self) -> None:
        from jeepney import DBusErrorResponse  # noqa: PLC0415 - most nodes delay no shutdown

        while True:
            try:
                self.follow()
            except DBusErrorResponse as error:
                self._on_state(f"cannot delay the machine's shutdown: systemd-logind: {error}")
            except (OSError, LogindError, KeyError, ValueError, EOFError) as error:
                self._on_state(f"cannot delay the machine's shutdown: {error or type(error).__name__}")
            time.sleep(RECONNECT_S)

    def _take(self, bus: Any) -> None:
        """Take the lock. While a shutdown is under way there is none to be had, and nothing to be done about it."""
        from jeepney import DBusErrorResponse  # noqa: PLC0415

        about = ("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")
        try:
            (taken,) = _call(bus, "Inhibit", "ssss", about)
        except DBusErrorResponse:
            if _property(bus, "PreparingForShutdown"):
                return
            raise
        with self._lock:
            self._let_go()
            self._held = taken.to_raw_fd()
            self._number += 1
        self._on_state("")

    def _see_to_delay(self, bus: Any) -> None:
        """Have logind wait as long as pods may need. Raises LogindError when it will not."""
        if _longest_s(bus) >= self._delay_s:
            return
        log.info("%s: a shutdown may be delayed for %g s", DROP_IN, self._delay_s)
        DROP_IN.parent.mkdir(parents=True, exist_ok=True)
        DROP_IN.write_text(logind_drop_in(self._delay_s), encoding="utf-8")
        _reload(bus)
        deadline = time.monotonic() + RELOADED_S
        while (longest_s := _longest_s(bus)) < self._delay_s:
            if time.monotonic() > deadline:
                raise LogindError(
                    f"systemd-logind allows {longest_s:g} s, not the {self._delay_s:g} s that are configured; set "
                    "InhibitDelayMaxSec in /etc/systemd/logind.conf"
                )
            time.sleep(0.1)


def _longest_s(bus: Any) -> float:
    return float(_property(bus, "InhibitDelayMaxUSec")) / 1e6


def _reload(bus: Any) -> None:
    """Have logind read its configuration again."""
    from jeepney import DBusAddress, DBusErrorResponse, new_method_call  # noqa: PLC0415

    systemd = DBusAddress("/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager")
    with suppress(DBusErrorResponse):  # then it keeps its delay, which is looked at next
        _ask(bus, new_method_call(systemd, "KillUnit", "ssi", ("systemd-logind.service", "all", 1)))


def _call(bus: Any, member: str, signature: str, body: tuple[Any, ...]) -> tuple[Any, ...]:
    from jeepney import DBusAddress, new_method_call  # noqa: PLC0415

    return _ask(bus, new_method_call(DBusAddress(PATH, NAME, MANAGER), member, signature, body))


def _property(bus: Any, name: str) -> Any:
    from jeepney import DBusAddress, Properties  # noqa: PLC0415

    ((_, value),) = _ask(bus, Properties(DBusAddress(PATH, NAME, MANAGER)).get(name))
    return value


def _ask(bus: Any, message: Any) -> tuple[Any, ...]:
    """The body of the answer. Raises DBusErrorResponse, OSError."""
    from jeepney.wrappers import unwrap_msg  # noqa: PLC0415

    body: tuple[Any, ...] = unwrap_msg(bus.send_and_get_reply(message, timeout=CALL_S))
    return body
