"""The OCI runtime's command for a process in a container, and its files; for ExecSync and exec sessions."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence

import msgspec

from actors.runtime.containers.orphaned_execs import DIRECTORY, read_pid
from actors.runtime.engine.engine import Engine
from actors.runtime.model.processes import Process, is_alive, ticks_of_child
from actors.runtime.model.records import new_id
from actors.runtime.model.state import Container
from actors.runtime.oci.runtime import last_error
from actors.runtime.oci.spec.build import exec_process
from actors.runtime.oci.spec.shown import owner_of
from actors.runtime.selinux.kernel import label_file
from proto.common import untrusted

START_S = 60.0
POLL_S = 0.005
"""Interval of looking for the pid file, which appears after some ten intervals on an idle machine."""


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return True when the child has exited, without reaping it: a reader of its output opens it by its pid."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # another thread has reaped it
        return True


class ExecCommand:
    """`line` is the command line, `pid_file` the file that it writes at the start of the process."""

    def __init__(self, engine: Engine, container: Container, command: Sequence[str], *, tty: bool) -> None:
        """Write the process's specification; nothing stays of it after an error. Raises OSError."""
        directory = engine.run / DIRECTORY
        directory.mkdir(mode=0o700, exist_ok=True)
        name = new_id()[:16]
        process_file, self.pid_file, self._log = (directory / f"{name}.{kind}" for kind in ("process", "pid", "log"))
        unfinished = (f".{name}.pid", f"{name}.pid.tmp", f".{name}.pid.tmp")  # runc's pid file, the helper's, and both
        self._files = (process_file, self.pid_file, self._log, *(directory / one for one in unfinished))
        spec = untrusted.decode_json((engine.containers.path(container.record.id) / "config.json").read_bytes())
        try:
            process_file.write_bytes(msgspec.json.encode(exec_process(spec["process"], command, tty=tty)))
        except OSError:
            self.remove_files()
            raise
        oci = engine.oci_of(container.record.sandbox_id)
        self._label: str = spec.get("linux", {}).get("mountLabel", "")
        own_pipes = bool(self._label) and not tty
        self.line = oci.exec_command(container.record.id, process_file, self.pid_file, self._log, own_pipes=own_pipes)
        self._process: Process | None = None
        self._owner = owner_of(spec)
        self._fifo = directory / f"{name}.fifo"

    def pipe(self) -> tuple[int, int]:
        """A pipe for the command: reader, writer. Raises OSError.

        With SELinux it had a name at first: the kernel gives other pipes the agent's label, which is for no container.
        """
        if not self._label:
            return os.pipe2(os.O_CLOEXEC)
        os.mkfifo(self._fifo, 0o600)
        try:
            label_file(self._fifo, self._label)
            reader = os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                writer = os.open(self._fifo, os.O_WRONLY | os.O_CLOEXEC)
            except OSError:
                os.close(reader)
                raise
        finally:
            self._fifo.unlink()
        os.set_blocking(reader, True)
        return reader, writer

    def give(self, pipe: int) -> None:
        """Give the command's user a pipe, before the start. Raises OSError."""
        if self._owner is not None:
            os.chown(pipe, *self._owner)

    def wait_started(self, has_ended: Callable[[], bool]) -> None:
        """Wait until the process has started or failed. Killed earlier, the OCI runtime would leave it running."""
        deadline = time.monotonic() + START_S
        while not has_ended() and time.monotonic() < deadline:
            if self.pid_file.exists() and self.pid_file.stat().st_size:
                return
            time.sleep(POLL_S)

    def process(self, oci: subprocess.Popen[bytes]) -> Process | None:
        """The command's process while it runs; None before and after.

        It is known from the first call on while the OCI runtime waits for it. A kill of that one, as for want of
        memory, leaves the command running. After the end the pid may be another process's, which is no child of our OCI
        runtime.
        """
        if self._process is None:
            pid = read_pid(self.pid_file)
            ticks = ticks_of_child(pid, oci.pid) if pid else ""
            # Looked at last: until it is reaped, no other process has its pid.
            self._process = Process(pid, ticks) if ticks and not has_ended(oci) else None
        known = self._process
        return known if known is not None and is_alive(*known) else None

    def error(self, code: int, said: bytes = b"") -> str:
        """The OCI runtime's own error; empty if the exit code is the process's.

        Without a pid file the process has not started: a full disk may take the log as well. `said` is the OCI
        runtime's stderr, which then has the error.
        """
        if code == 0:
            return ""
        if logged := last_error(self._log):
            return logged
        if read_pid(self.pid_file):
            return ""
        why = said.decode(errors="replace").strip()
        return why or f"the OCI runtime ended with code {code} before the command started"

    def remove_files(self) -> None:
        """Idempotent."""
        for file in self._files:
            file.unlink(missing_ok=True)
