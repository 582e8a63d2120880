"""The OCI runtime's command for a process in a container, and its files; for ExecSync and exec sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from actors.runtime.containers.orphaned_execs import DIRECTORY
from actors.runtime.engine.engine import Engine
from actors.runtime.model.records import new_id
from actors.runtime.model.state import Container
from actors.runtime.oci.runtime import last_error
from actors.runtime.oci.spec.build import exec_process
from proto.common import untrusted

START_S = 60.0
POLL_S = 0.005
"""Interval of looking for the pid file, which appears after some ten intervals on an idle machine."""


class ExecCommand:
    """`line` is the command line, `pid_file` the file that it writes at the start of the process."""

    def __init__(self, engine: Engine, container: Container, command: Sequence[str], *, tty: bool) -> None:
        """Write the process's specification. Raises OSError."""
        directory = engine.run / DIRECTORY
        directory.mkdir(mode=0o700, exist_ok=True)
        name = new_id()[:16]
        process_file, self.pid_file, self._log = (directory / f"{name}.{kind}" for kind in ("process", "pid", "log"))
        self._files = (process_file, self.pid_file, self._log)
        spec = untrusted.decode_json((engine.containers.path(container.record.id) / "config.json").read_bytes())
        process_file.write_bytes(msgspec.json.encode(exec_process(spec["process"], command, tty=tty)))
        self.line = engine.oci.exec_command(container.record.id, process_file, self.pid_file, self._log)

    def wait_started(self, has_ended: Callable[[], bool]) -> None:
        """Wait until the process has started or failed. Killed earlier, the OCI runtime would leave it running."""
        deadline = time.monotonic() + START_S
        while not has_ended() and time.monotonic() < deadline:
            if self.pid_file.exists() and self.pid_file.stat().st_size:
                return
            time.sleep(POLL_S)

    def error(self, code: int) -> str:
        """The OCI runtime's own error; empty if the exit code is the process's."""
        return last_error(self._log) if code != 0 else ""

    def remove_files(self) -> None:
        """Idempotent."""
        for file in self._files:
            file.unlink(missing_ok=True)
