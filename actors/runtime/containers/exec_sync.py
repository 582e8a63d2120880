"""ExecSync: runs a command in a container with a time limit; returns its output and exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

from actors.runtime.containers.exec_command import ExecCommand, has_ended
from actors.runtime.engine.engine import Engine
from actors.runtime.model import processes
from actors.runtime.model.errors import AtEnd, RpcError
from actors.runtime.model.output import collect
from actors.runtime.model.state import Container

MOST_BYTES = 16 * 1024 * 1024
"""Kept of each stream; more output is read and dropped, as in other runtimes."""


class Output(NamedTuple):
    """The output and exit code of a command."""

    stdout: bytes
    stderr: bytes
    code: int


def exec_sync(engine: Engine, container: Container, command: Sequence[str], timeout_s: float, at_end: AtEnd) -> Output:
    """Run the command; `timeout_s` 0 is no limit. It is killed when the client goes.

    Raises RpcError, DEADLINE_EXCEEDED after the time limit, CANCELLED without the client.
    """
    container.require_running()
    if not command:
        raise RpcError("INVALID_ARGUMENT", "no command to run")
    try:
        exec_command = ExecCommand(engine, container, command, tty=False)
        try:
            return _run(exec_command, container, command, timeout_s, at_end)
        finally:
            exec_command.remove_files()
    except OSError as error:
        raise RpcError("UNKNOWN", f"cannot run a command in container {container.record.id}: {error}") from error


def _run(
    exec_command: ExecCommand, container: Container, command: Sequence[str], timeout_s: float, at_end: AtEnd
) -> Output:
    with _started(exec_command) as process:
        client = _Client(process, exec_command, at_end)
        exec_command.wait_started(lambda: has_ended(process))
        exec_command.process(process)  # it stays known if its OCI runtime is killed
        client.note_start()
        # The limit counts from the command's start: on a busy machine the OCI runtime exceeds many a probe's limit.
        deadline = time.monotonic() + timeout_s if timeout_s > 0 else None
        shown = " ".join(command)
        try:
            stdout, stderr = collect(process, deadline, MOST_BYTES)
        except TimeoutError:
            _kill(process, exec_command)
            raise RpcError("DEADLINE_EXCEEDED", f"command {shown!r} timed out after {timeout_s:g} s") from None
        except OSError:  # as for want of descriptors: nothing would read or limit the command
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                stream.close()  # a signal needs a descriptor, too
            try:
                _kill(process, exec_command)
            finally:
                process.kill()
            raise
        code = process.wait()
        if code < 0:  # a signal has ended the OCI runtime, as for want of memory: nothing else limits the command
            _kill_inside(process, exec_command)
    if client.gone:
        raise RpcError("CANCELLED", f"the client no longer waits for command {shown!r}")
    if said := exec_command.error(code, stderr):
        raise RpcError("UNKNOWN", f"cannot run a command in container {container.record.id}: {said}")
    return Output(stdout, stderr, code if code >= 0 else 128 - code)


def _started(exec_command: ExecCommand) -> subprocess.Popen[bytes]:
    """The OCI runtime, with pipes for output that belong to the command's user from its start on. Raises OSError."""
    pipes: list[tuple[int, int]] = []
    try:
        for _ in range(2):
            pipes.append(exec_command.pipe())
            exec_command.give(pipes[-1][1])
        (stdout, said), (stderr, failed) = pipes
        process = subprocess.Popen(exec_command.line, stdin=subprocess.DEVNULL, stdout=said, stderr=failed, cwd="/")
    except BaseException:
        for reader, _ in pipes:
            os.close(reader)
        raise
    finally:
        for _, writer in pipes:
            os.close(writer)
    process.stdout, process.stderr = os.fdopen(stdout, "rb"), os.fdopen(stderr, "rb")
    return process


class _Client:
    """Kills the command once the client has gone, from gRPC's thread, in which nothing may wait."""

    def __init__(self, process: subprocess.Popen[bytes], exec_command: ExecCommand, at_end: AtEnd) -> None:
        self._process, self._exec_command = process, exec_command
        self._started = self.gone = False
        if at_end(self._go) is False:
            self._go()

    def note_start(self) -> None:
        """The command has started, and can be killed. Before, the OCI runtime would leave it running."""
        self._started = True
        if self.gone:
            self._end()

    def _go(self) -> None:
        self.gone = True
        if self._started:
            self._end()

    def _end(self) -> None:
        if not _kill_inside(self._process, self._exec_command):
            self._process.kill()


def _kill(process: subprocess.Popen[bytes], exec_command: ExecCommand) -> None:
    """Kill the command in the container, then the OCI runtime that waits for it."""
    _kill_inside(process, exec_command)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
        return
    process.kill()


def _kill_inside(process: subprocess.Popen[bytes], exec_command: ExecCommand) -> bool:
    """Kill the command in the container; return False when none runs."""
    command = exec_command.process(process)
    if command is None:
        return False
    processes.send_signal(*command, signal.SIGKILL)
    return True
