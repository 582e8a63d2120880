"""A fake systemd-logind on a private bus: the kubelet's calls, the lock as a pipe, signals on demand."""

from __future__ import annotations

import configparser
import os
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from jeepney import DBusAddress, HeaderFields, MessageType, message_bus, new_error, new_method_return, new_signal
from jeepney.io.blocking import open_dbus_connection

MANAGER = DBusAddress("/org/freedesktop/login1", None, "org.freedesktop.login1.Manager")
CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="method_call"/>
<allow send_type="signal"/><allow send_requested_reply="true"/><allow receive_type="method_call"/>
<allow receive_type="signal"/><allow receive_requested_reply="true"/></policy></busconfig>
"""


class FakeLogind:
    """A context manager. `address` is the bus's, `locks` the locks taken so far; `held`: one is held now."""

    def __init__(self, longest_s: float = 60.0, drop_in: Path | None = None) -> None:
        """`drop_in` is read again at systemd's KillUnit, as logind reads its configuration at SIGHUP."""
        self.longest_s, self._drop_in = longest_s, drop_in
        self.under_way = False
        self.locks: list[tuple[str, ...]] = []
        self._open: list[int] = []
        self._given: list[int] = []

    def __enter__(self) -> FakeLogind:
        self._dir = tempfile.TemporaryDirectory(prefix="nvbus-", dir="/tmp")
        socket = f"{self._dir.name}/bus"
        config = Path(self._dir.name, "bus.conf")
        config.write_text(CONFIG.format(socket=socket))
        self.address = f"unix:path={socket}"
        self._daemon = subprocess.Popen(
            ["dbus-daemon", "--nofork", "--print-address", f"--config-file={config}"], stdout=subprocess.PIPE
        )
        assert self._daemon.stdout is not None
        assert self._daemon.stdout.readline(), "dbus-daemon does not start"
        self._bus = open_dbus_connection(self.address, enable_fds=True)
        for name in ("org.freedesktop.login1", "org.freedesktop.systemd1"):
            self._bus.send_and_get_reply(message_bus.RequestName(name))
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._daemon.terminate()
        self._daemon.wait(10)
        self._thread.join(10)
        self._bus.close()
        assert self._daemon.stdout is not None
        self._daemon.stdout.close()
        for descriptor in self._open:
            os.close(descriptor)
        self._dir.cleanup()

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

    def _serve(self) -> None:
        while True:
            try:
                message = self._bus.receive()
            except (OSError, EOFError):
                return
            if message.header.message_type is MessageType.method_call:
                answer = self._answer(message)
                with self._lock:
                    self._bus.send(answer)
                while self._given:
                    os.close(self._given.pop())

    def _answer(self, message: Any) -> Any:
        member = message.header.fields[HeaderFields.member]
        if member == "Get":
            values = {
                "InhibitDelayMaxUSec": ("t", int(self.longest_s * 1e6)), "PreparingForShutdown": ("b", self.under_way),
            }  # fmt: skip
            return new_method_return(message, "v", (values[message.body[1]],))
        if member == "KillUnit" and self._drop_in is not None:
            assert message.body == ("systemd-logind.service", "all", signal.SIGHUP)
            found = configparser.ConfigParser()
            found.optionxform = str  # type: ignore[assignment,method-assign]
            found.read(self._drop_in)
            self.longest_s = found.getfloat("Login", "InhibitDelayMaxSec")
            return new_method_return(message)
        if member == "Inhibit" and not self.under_way:
            reading, writing = os.pipe()
            self._open.append(reading)
            self.locks.append(tuple(message.body))
            self._given.append(writing)  # ours to close once it is sent
            return new_method_return(message, "h", (writing,))
        return new_error(message, "org.freedesktop.login1.OperationInProgress", "s", ("a shutdown is under way",))
