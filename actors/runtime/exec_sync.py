"""ExecSync: a command in a container, its output and its exit code, within a time limit."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from actors.runtime import processes
from actors.runtime.engine import Engine
from actors.runtime.errors import RpcError, unmet
from actors.runtime.oci import last_complaint
from actors.runtime.records import new_id
from actors.runtime.spec.build import exec_process
from actors.runtime.state import Container
from actors.runtime.strays import DIRECTORY
from proto.cri import api_pb2 as pb

MOST_BYTES = 16 * 1024 * 1024
"""Of either stream; what is more is read and dropped, as the field does."""
START_S = 60.0
STARTED_LOOK_S = 0.005
"""The OCI runtime takes some ten of these on an idle machine, and tells by a file when it is done."""
DRAIN_S = 2.0
"""A process that the command leaves behind may keep its output open: so long is waited for the end."""


class Output(NamedTuple):
    """What came of it."""

    stdout: bytes
    stderr: bytes
    code: int


def exec_sync(engine: Engine, container: Container, command: Sequence[str], timeout_s: float) -> Output:
    """Run it; `timeout_s` 0 is without limit. Raises RpcError: DEADLINE_EXCEEDED when it was killed for its time."""
    if container.state != pb.CONTAINER_RUNNING:
        raise unmet(f"container {container.record.id} is in state {pb.ContainerState.Name(container.state)}")
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
    spec = msgspec.json.decode((engine.containers.path(container.record.id) / "config.json").read_bytes())
    process_file.write_bytes(msgspec.json.encode(exec_process(spec["process"], command, tty=False)))
    line = engine.oci.exec_command(container.record.id, process_file, pid_file, log_file)
    with subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
    ) as process:
        _wait_started(process, pid_file)
        # From its start on: on a busy machine the OCI runtime takes longer than many a probe has.
        deadline = time.monotonic() + timeout_s if timeout_s > 0 else None
        try:
            stdout, stderr = _collect(process, deadline)
        except TimeoutError:
            _kill(process, pid_file)
            shown = " ".join(command)
            raise RpcError("DEADLINE_EXCEEDED", f"command {shown!r} timed out after {timeout_s:g} s") from None
        code = process.wait()
    said = last_complaint(log_file) if code != 0 else ""
    if said:
        raise RpcError("UNKNOWN", f"cannot run a command in container {container.record.id}: {said}")
    return Output(stdout, stderr, code if code >= 0 else 128 - code)


def _wait_started(process: subprocess.Popen[bytes], pid_file: Path) -> None:
    """Until the command runs, or never will. Killed before that, the OCI runtime would leave it running."""
    deadline = time.monotonic() + START_S
    while not _has_ended(process.pid) and time.monotonic() < deadline:
        if pid_file.exists() and pid_file.stat().st_size:
            return
        time.sleep(STARTED_LOOK_S)


def _has_ended(pid: int) -> bool:
    """Whether a child has, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _collect(process: subprocess.Popen[bytes], deadline: float | None) -> tuple[bytes, bytes]:
    """Both streams until their end, or a while after the command's. Raises TimeoutError."""
    assert process.stdout is not None
    assert process.stderr is not None
    collected = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    pidfd = os.pidfd_open(process.pid)
    ended_at: float | None = None
    try:
        with selectors.DefaultSelector() as selector:
            for fd in (*collected, pidfd):
                selector.register(fd, selectors.EVENT_READ)
            while selector.get_map():
                if ended_at is not None and time.monotonic() > ended_at + DRAIN_S:
                    break
                for key, _ in selector.select(_wait_s(deadline, ended_at)):
                    if key.fd == pidfd:
                        ended_at = time.monotonic()
                        selector.unregister(pidfd)
                    elif chunk := os.read(key.fd, 65536):
                        room = MOST_BYTES - len(collected[key.fd])
                        collected[key.fd] += chunk[: max(0, room)]
                    else:
                        selector.unregister(key.fd)
                if deadline is not None and ended_at is None and time.monotonic() > deadline:
                    raise TimeoutError
    finally:
        os.close(pidfd)
    stdout, stderr = collected.values()
    return bytes(stdout), bytes(stderr)


def _wait_s(deadline: float | None, ended_at: float | None) -> float | None:
    ends = [end for end in (deadline, None if ended_at is None else ended_at + DRAIN_S) if end is not None]
    return max(0.0, min(ends) - time.monotonic()) if ends else None


def _kill(process: subprocess.Popen[bytes], pid_file: Path) -> None:
    """The command in the container, then the program that waits for it."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        processes.send_signal(pid, processes.start_ticks(pid), signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
        return
    process.kill()
