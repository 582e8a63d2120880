"""A peer on a private D-Bus: it owns a name there and answers method calls in a thread."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jeepney import MessageType, message_bus
from jeepney.io.blocking import open_dbus_connection

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="method_call"/>
<allow send_type="signal"/><allow send_requested_reply="true"/><allow receive_type="method_call"/>
<allow receive_type="signal"/><allow receive_requested_reply="true"/></policy></busconfig>
"""


class BusPeer:
    """A context manager. `address` is the bus's. Subclasses have `names` and `_answers`."""

    names: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        self._dir = tempfile.TemporaryDirectory(prefix="nvbus-", dir="/tmp")
        socket, config = f"{self._dir.name}/bus", Path(self._dir.name, "bus.conf")
        config.write_text(CONFIG.format(socket=socket))
        self.address = f"unix:path={socket}"
        self._command = ["dbus-daemon", "--nofork", "--print-address", f"--config-file={config}"]
        self._lock = threading.Lock()
        self.connect()
        return self

    def connect(self) -> None:
        """Start the bus and the peer on it."""
        self._daemon = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self._daemon.stdout is not None
        assert self._daemon.stdout.readline(), "dbus-daemon does not start"
        self._bus = open_dbus_connection(self.address, enable_fds=True)
        for name in self.names:
            self._bus.send_and_get_reply(message_bus.RequestName(name))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def disconnect(self) -> None:
        """End the bus."""
        self._daemon.terminate()
        self._daemon.wait(10)
        self._thread.join(10)
        self._bus.close()
        assert self._daemon.stdout is not None
        self._daemon.stdout.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disconnect()
        self._dir.cleanup()

    def _serve(self) -> None:
        while True:
            try:
                message = self._bus.receive()
                if message.header.message_type is MessageType.method_call:
                    answers = self._answers(message)
                    with self._lock:
                        for answer in answers:
                            self._bus.send(answer)
                    self._sent()
            except (OSError, EOFError):
                return

    def _answers(self, message: Any) -> list[Any]:
        """The messages to send for a call: signals and its answer, in order."""
        raise NotImplementedError

    def _sent(self) -> None:
        """The answers are sent."""
