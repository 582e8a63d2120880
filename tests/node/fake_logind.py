"""A fake systemd-logind on a private bus: the kubelet's calls, the lock as a pipe, signals on demand."""

from __future__ import annotations

import configparser
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Any

from jeepney import DBusAddress, HeaderFields, message_bus, new_error, new_method_return, new_signal

from tests.system_bus import BusPeer

MANAGER = DBusAddress("/org/freedesktop/login1", None, "org.freedesktop.login1.Manager")


class FakeLogind(BusPeer):
    """A context manager. `locks` are the locks taken so far; `held`: one is held now."""

    names = ("org.freedesktop.login1", "org.freedesktop.systemd1")

    def __init__(self, longest_s: float = 60.0, drop_in: Path | None = None) -> None:
        """`drop_in` is read again at systemd's KillUnit, as logind reads its configuration at SIGHUP."""
        self.longest_s, self._drop_in = longest_s, drop_in
        self.overruled = False
        """A file that is read after `drop_in` keeps the delay."""
        self.refused_reloads = 0
        """The number of next reloads that systemd refuses."""
        self.looks = self.reloads = 0
        self.under_way = False
        self.locks: list[tuple[str, ...]] = []
        self._open: list[int] = []
        self._given: list[int] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        for descriptor in self._open:
            os.close(descriptor)

    def held(self) -> bool:
        """True when the lock that was taken last is still held: its pipe has an end for writing."""
        if not self._open:
            return False
        os.set_blocking(self._open[-1], False)
        try:
            return os.read(self._open[-1], 1) != b""
        except BlockingIOError:
            return True

    def shutdown(self, begins: bool) -> None:
        """Signal that a shutdown begins, or is cancelled."""
        self.under_way = begins
        with self._lock:
            self._bus.send(new_signal(MANAGER, "PrepareForShutdown", "b", (begins,)))

    def restart(self) -> None:
        """Become a new process, which has forgotten a delayed shutdown."""
        self.under_way = False
        with self._lock:
            for request in (message_bus.ReleaseName, message_bus.RequestName):
                self._bus.send(request(self.names[0]))  # the thread reads the answers

    def _sent(self) -> None:
        while self._given:
            os.close(self._given.pop())

    def _answers(self, message: Any) -> list[Any]:
        return [self._answer(message)]

    def _answer(self, message: Any) -> Any:
        member = message.header.fields[HeaderFields.member]
        if member == "Get":
            self.looks += 1
            values = {
                "InhibitDelayMaxUSec": ("t", int(self.longest_s * 1e6)), "PreparingForShutdown": ("b", self.under_way),
            }  # fmt: skip
            return new_method_return(message, "v", (values[message.body[1]],))
        if member == "KillUnit" and self.refused_reloads:
            self.refused_reloads -= 1
            return new_error(message, "org.freedesktop.systemd1.NoSuchUnit", "s", ("not loaded",))
        if member == "KillUnit" and self._drop_in is not None:
            assert message.body == ("systemd-logind.service", "all", signal.SIGHUP)
            found = configparser.ConfigParser()
            found.optionxform = str  # type: ignore[assignment,method-assign]
            found.read(self._drop_in)
            self.reloads += 1
            if not self.overruled:
                self.longest_s = found.getfloat("Login", "InhibitDelayMaxSec")
            return new_method_return(message)
        if member == "Inhibit" and not self.under_way:
            reading, writing = os.pipe()
            self._open.append(reading)
            self.locks.append(tuple(message.body))
            self._given.append(writing)  # ours to close once it is sent
            return new_method_return(message, "h", (writing,))
        return new_error(message, "org.freedesktop.login1.OperationInProgress", "s", ("a shutdown is under way",))
