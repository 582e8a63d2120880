"""Delays the machine's shutdown with an inhibitor lock of systemd-logind, and reports when a shutdown begins.

A thread blocks on the system bus. Source: https://systemd.io/INHIBITOR_LOCKS/ and
https://www.freedesktop.org/software/systemd/man/org.freedesktop.login1.html.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from jeepney import (
    DBusAddress,
    DBusErrorResponse,
    HeaderFields,
    MatchRule,
    Message,
    Properties,
    message_bus,
    new_method_call,
)
from jeepney.io.blocking import open_dbus_connection
from jeepney.wrappers import unwrap_msg

from actors.node.shutdown.policy import logind_drop_in

log = logging.getLogger(__name__)

RECONNECT_S = 1.0
"""The kubelet's. A shutdown that begins meanwhile is not delayed, so that its pods die with the machine."""
CALL_S = 25.0
DROP_IN = Path("/etc/systemd/logind.conf.d/99-kubelet.conf")
"""The kubelet's file name, so that a node that changes between the two agents has one file."""
RELOADED_S = 5.0
RECHECK_S = 60.0
"""Poll interval of a delay that logind does not allow. It sends no signal when that changes."""
NAME, PATH = "org.freedesktop.login1", "/org/freedesktop/login1"
BUS = "org.freedesktop.DBus"
MANAGER = "org.freedesktop.login1.Manager"


class LogindError(Exception):
    """logind does not allow the delay; the message says what to configure."""


class Logind:
    """The inhibitor lock. It is held from `start` on and taken again when the bus comes back."""

    def __init__(
        self, delay_s: float, on_shutdown: Callable[[bool, int], None], on_state: Callable[[str], None]
    ) -> None:
        """Both callbacks run in logind's thread.

        `on_shutdown(under_way, lock)` reports whether a shutdown is under way and the lock's number, also repeatedly.
        `on_state(problem)` reports why the lock is not held; empty when it is.
        """
        self._delay_s, self._on_shutdown, self._on_state = delay_s, on_shutdown, on_state
        self._lock = threading.Lock()
        self._held: int | None = None
        self._number = 0
        """Count of locks taken so far."""
        self._reloaded: bool | None = None
        """True: systemd has made logind read its configuration again. False: it refused to."""

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="logind", daemon=True).start()

    def release(self, number: int) -> None:
        """Release lock `number`. A lock that was taken since stays: it delays the next shutdown."""
        with self._lock:
            if number == self._number:
                self._release()

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def follow(self) -> None:
        """Serve one connection until it breaks.

        Raises DBusErrorResponse, OSError, KeyError, ValueError, EOFError.
        """
        with open_dbus_connection("SYSTEM", enable_fds=True) as bus:
            signals: deque[Message] = deque(maxlen=16)
            shutdowns = MatchRule(type="signal", interface=MANAGER, member="PrepareForShutdown", path=PATH)
            owners = MatchRule(
                type="signal", sender=BUS, interface=BUS, member="NameOwnerChanged", path="/org/freedesktop/DBus"
            )
            owners.add_arg_condition(0, NAME)
            with bus.filter(shutdowns, queue=signals), bus.filter(owners, queue=signals):
                for rule in (shutdowns, owners):
                    _ask(bus, message_bus.AddMatch(rule))
                while True:
                    self._follow_process(bus, signals)

    def _follow_process(self, bus: Any, signals: deque[Message]) -> None:
        """Serve one process of logind until the next one starts. The next one knows of no shutdown that was delayed."""
        try:
            self._ensure_delay(bus)
        except LogindError as error:
            self._on_state(f"cannot delay the machine's shutdown: {error}")
            if not self._wait_for_delay(bus, signals):
                return
        self._take(bus)
        under_way = bool(_property(bus, "PreparingForShutdown"))
        self._on_shutdown(under_way, self._number)
        while True:
            signal = bus.recv_until_filtered(signals)
            if _is_of_owner(signal):
                if signal.body[2]:
                    return
                continue
            begins = bool(signal.body[0])
            if begins == under_way:
                continue  # the signal of the shutdown that the property has told of
            under_way = begins
            if not begins:
                self._take(bus)
            self._on_shutdown(begins, self._number)

    def _run(self) -> None:
        while True:
            try:
                self.follow()
            except DBusErrorResponse as error:
                self._on_state(f"cannot delay the machine's shutdown: systemd-logind: {error}")
            except (OSError, KeyError, ValueError, EOFError) as error:
                self._on_state(f"cannot delay the machine's shutdown: {error or type(error).__name__}")
            time.sleep(RECONNECT_S)

    def _take(self, bus: Any) -> None:
        """Take the lock. logind refuses it during a shutdown; that is no error."""
        about = ("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")
        try:
            (taken,) = _call(bus, "Inhibit", "ssss", about)
        except DBusErrorResponse:
            if _property(bus, "PreparingForShutdown"):
                return
            raise
        with self._lock:
            self._release()
            self._held = taken.to_raw_fd()
            self._number += 1
        self._on_state("")

    def _ensure_delay(self, bus: Any) -> None:
        """Configure logind to allow the delay. Raises LogindError when it does not, within RELOADED_S of a reload.

        A drop-in of another name may overrule ours. So it is written only when it differs, and logind reads it only
        after that, or once.
        """
        if _longest_s(bus) >= self._delay_s:
            return
        deadline = time.monotonic()
        if _write_drop_in(self._delay_s) or not self._reloaded:
            self._reloaded = _reload(bus)
            deadline += RELOADED_S
        while (longest_s := _longest_s(bus)) < self._delay_s:
            if time.monotonic() >= deadline:
                raise LogindError(
                    f"systemd-logind allows {longest_s:g} s, not the {self._delay_s:g} s that are configured; raise "
                    "InhibitDelayMaxSec, which `systemd-analyze cat-config systemd/logind.conf` shows with its file"
                )
            time.sleep(0.1)

    def _wait_for_delay(self, bus: Any, signals: deque[Message]) -> bool:
        """Wait until logind allows the delay. False when another process of logind has started first.

        A reload that systemd has refused, as early in the boot, is tried again.
        """
        while _longest_s(bus) < self._delay_s:
            if self._reloaded is False:
                self._reloaded = _reload(bus)
            with suppress(TimeoutError):
                signal = bus.recv_until_filtered(signals, timeout=RECHECK_S)
                if _is_of_owner(signal) and signal.body[2]:
                    return False
        return True


def _write_drop_in(delay_s: float) -> bool:
    """Write logind's configuration unless it is there. Raises LogindError."""
    content = logind_drop_in(delay_s).encode()
    try:
        with suppress(FileNotFoundError):
            if DROP_IN.read_bytes() == content:
                return False
        log.info("writing %s: allow a shutdown delay of %g s", DROP_IN, delay_s)
        DROP_IN.parent.mkdir(parents=True, exist_ok=True)
        DROP_IN.write_bytes(content)
    except OSError as error:
        raise LogindError(f"cannot write {DROP_IN}: {error.strerror}; set InhibitDelayMaxSec={delay_s:.0f}") from error
    return True


def _is_of_owner(signal: Message) -> bool:
    return bool(signal.header.fields[HeaderFields.member] == "NameOwnerChanged")


def _longest_s(bus: Any) -> float:
    return float(_property(bus, "InhibitDelayMaxUSec")) / 1e6


def _reload(bus: Any) -> bool:
    """Make logind read its configuration again. False when systemd refuses."""
    systemd = DBusAddress("/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager")
    try:
        _ask(bus, new_method_call(systemd, "KillUnit", "ssi", ("systemd-logind.service", "all", 1)))
    except DBusErrorResponse:
        return False
    return True


def _call(bus: Any, member: str, signature: str, body: tuple[Any, ...]) -> tuple[Any, ...]:
    return _ask(bus, new_method_call(DBusAddress(PATH, NAME, MANAGER), member, signature, body))


def _property(bus: Any, name: str) -> Any:
    ((_, value),) = _ask(bus, Properties(DBusAddress(PATH, NAME, MANAGER)).get(name))
    return value


def _ask(bus: Any, message: Any) -> tuple[Any, ...]:
    """Send `message` and return the body of the answer. Raises DBusErrorResponse, OSError."""
    body: tuple[Any, ...] = unwrap_msg(bus.send_and_get_reply(message, timeout=CALL_S))
    return body
