"""ExecSync: runs a command in a container with a time limit; returns its output and exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from actors.runtime.containers.orphaned_execs import DIRECTORY
from actors.runtime.engine.engine import Engine
from actors.runtime.model import processes
from actors.runtime.model.errors import RpcError
from actors.runtime.model.output import collect
from actors.runtime.model.records import new_id
from actors.runtime.model.state import Container
from actors.runtime.oci.runtime import last_error
from actors.runtime.oci.spec.build import exec_process
from proto.common import untrusted

MOST_BYTES = 16 * 1024 * 1024
"""Of each stream; more output is read and dropped, as in other runtimes."""
START_S = 60.0
STARTED_LOOK_S = 0.005
"""Interval of looking for the pid file, which appears after some ten intervals on an idle machine."""


class Output(NamedTuple):
    """The output and exit code of a command."""

    stdout: bytes
    stderr: bytes
    code: int


def exec_sync(engine: Engine, container: Container, command: Sequence[str], timeout_s: float) -> Output:
    """Run the command; `timeout_s` 0 is no limit. Raises RpcError, DEADLINE_EXCEEDED after the time limit."""
    container.require_running()
    if not command:
        raise RpcError("INVALID_ARGUMENT", "no command to run")
    directory = engine.run / DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    name = new_id()[:16]
    files = [directory / f"{name}.{what}" for what in ("process", "pid", "log")]
    try:
        return _run(engine, container, command, timeout_s, files)
    except OSError as error:
        raise RpcError("UNKNOWN", f"cannot run a command in container {container.record.id}: {error}") from error
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def _run(engine: Engine, container: Container, command: Sequence[str], timeout_s: float, files: list[Path]) -> Output:
    process_file, pid_file, log_file = files
    spec = untrusted.decode_json((engine.containers.path(container.record.id) / "config.json").read_bytes())
    process_file.write_bytes(msgspec.json.encode(exec_process(spec["process"], command, tty=False)))
    line = engine.oci.exec_command(container.record.id, process_file, pid_file, log_file)
    with subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
    ) as process:
        _wait_started(process, pid_file)
        # The limit counts from the command's start: on a busy machine the OCI runtime takes longer than many probes
        # may.
        deadline = time.monotonic() + timeout_s if timeout_s > 0 else None
        try:
            stdout, stderr = collect(process, deadline, MOST_BYTES)
        except TimeoutError:
            _kill(process, pid_file)
            shown = " ".join(command)
            raise RpcError("DEADLINE_EXCEEDED", f"command {shown!r} timed out after {timeout_s:g} s") from None
        code = process.wait()
    said = last_error(log_file) if code != 0 else ""
    if said:
        raise RpcError("UNKNOWN", f"cannot run a command in container {container.record.id}: {said}")
    return Output(stdout, stderr, code if code >= 0 else 128 - code)


def _wait_started(process: subprocess.Popen[bytes], pid_file: Path) -> None:
    """Wait until the command has started or failed. Killed earlier, the OCI runtime would leave it running."""
    deadline = time.monotonic() + START_S
    while not _has_ended(process.pid) and time.monotonic() < deadline:
        if pid_file.exists() and pid_file.stat().st_size:
            return
        time.sleep(STARTED_LOOK_S)


def _has_ended(pid: int) -> bool:
    """Return True when the child has exited, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill(process: subprocess.Popen[bytes], pid_file: Path) -> None:
    """Kill the command in the container, then the OCI runtime that waits for it."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        processes.send_signal(pid, processes.start_ticks(pid), signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
        return
    process.kill()
