"""Attaches a client to a container: output through the monitor, input through the FIFO or the terminal.

With stdinOnce the input is closed for good when the first client with input ends it or leaves. A terminal stays open.
Without it, or with a terminal, the end of a client's input ends its session, as in containerd. The container runs on.
"""

from __future__ import annotations

import contextlib
import os
import threading

from actors.runtime.engine.engine import Engine
from actors.runtime.engine.monitor_client import MonitorError
from actors.runtime.model.state import Container
from actors.runtime.streaming.policy import SessionRequest
from actors.runtime.streaming.remotecommand import ProcessStreams


class Attachment:
    """One client's attachment. `streams` are the container's side of the session. Its methods block; use a thread."""

    def __init__(self, engine: Engine, container: Container, wanted: SessionRequest) -> None:
        """Raises OSError, MonitorError, TimeoutError."""
        self._engine, self._container = engine, container
        self._fds: list[int] = []
        self._closing = threading.Lock()
        started = container.started
        if started is None:
            raise MonitorError("the container does not run")
        try:
            self._fds.append(pidfd := os.pidfd_open(started.pid))
            outputs, takes_input, terminal = self._attach(wanted)
            stdin = self._input(wanted, terminal) if takes_input else -1
        except BaseException:
            self.close()
            raise
        # The end of this client's input is the end of the container's, which may then print its result and exit.
        self._is_last = stdin >= 0 and container.config.stdin_once and terminal < 0
        self.streams = ProcessStreams(
            outputs,
            pidfd,
            stdin,
            terminal,
            ends_with_output=bool(outputs),
            ends_with_input=not outputs or (stdin >= 0 and not self._is_last),
            on_stdin_end=self._close_input,
        )

    def _attach(self, wanted: SessionRequest) -> tuple[dict[str, int], bool, int]:
        names = [name for name in wanted.outputs if name == "stdout" or not self._container.config.tty]
        pipes: dict[str, tuple[int, int]] = {}
        try:
            for name in names:
                pipes[name] = os.pipe2(os.O_CLOEXEC)
                self._fds.append(pipes[name][0])
            takes_input, terminal = self._engine.monitor.client.attach(
                self._container.record.id, {name: writer for name, (_, writer) in pipes.items()}
            )
        finally:
            for _, writer in pipes.values():
                os.close(writer)
        outputs = {name: reader for name, (reader, _) in pipes.items()}
        for reader in outputs.values():
            os.set_blocking(reader, False)
        if terminal >= 0:
            self._fds.append(terminal)
        return outputs, takes_input, terminal

    def _input(self, wanted: SessionRequest, terminal: int) -> int:
        if not wanted.stdin or not self._container.config.stdin:
            return -1
        if terminal >= 0:
            return terminal
        path = self._engine.containers.path(self._container.record.id) / "stdin"
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _close_input(self) -> None:
        """Close the container's input once, if it ends with this client. In a thread, as the monitor may be busy."""
        with self._closing:
            was_last, self._is_last = self._is_last, False
        if was_last:
            threading.Thread(target=self._tell_end, name="close stdin", daemon=True).start()

    def _tell_end(self) -> None:
        with contextlib.suppress(MonitorError, TimeoutError, OSError):
            self._engine.monitor.client.ask("close-stdin", self._container.record.id)

    def close(self) -> None:
        """Release all descriptors, after the session."""
        if self._fds and hasattr(self, "_is_last"):
            self._close_input()
        for fd in self._fds:
            os.close(fd)
        self._fds = []
