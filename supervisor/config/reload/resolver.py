"""Runs the process that reads changed configuration files, `supervisor.cli.agent.resolve`, within a deadline."""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from proto.common import interpreter, untrusted
from supervisor.config.reload.candidate import Resolved

DEADLINE_S = 10.0
"""Reading a megabyte of YAML takes 2 s; a file system that hangs never answers."""


class Resolver:
    """One run. Its `pidfd` becomes readable at its end; then call `result`."""

    def __init__(self, arguments: tuple[str, ...], now: float) -> None:
        """Raises OSError."""
        self.deadline = now + DEADLINE_S
        self._overdue = False
        request = _memory(msgspec.json.encode(arguments))
        self._result = os.memfd_create("configuration", os.MFD_CLOEXEC)
        try:
            # A dup2 to itself makes a descriptor inheritable, in the new process only.
            actions = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in (request, self._result)]
            line = interpreter.command("supervisor.cli.agent.resolve", str(request), str(self._result))
            self.pid = os.posix_spawn(sys.executable, line, os.environ, file_actions=actions, setsigdef=_SIGNALS)
            self.pidfd = os.pidfd_open(self.pid)  # our child: the loop does not reap it before this returns
        except OSError:
            os.close(self._result)
            raise
        finally:
            os.close(request)

    def kill(self) -> None:
        """Kill the process; `result` then tells of the deadline."""
        self._overdue = True
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return

    def result(self) -> Resolved:
        """The process's result, or an error when it gave none. Call after its end; closes the descriptors."""
        size = os.fstat(self._result).st_size
        content = os.pread(self._result, size, 0)
        self.close()
        if self._overdue:
            text = f"cannot read the files within {DEADLINE_S:g} s; check their file system"
            return Resolved(digest=text, error=text)
        try:
            return untrusted.decode_json(content, Resolved)
        except msgspec.DecodeError:
            text = "cannot read the files: the process that reads them failed; its error is in the log"
            return Resolved(digest=text, error=text)

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._result)
        os.close(self.pidfd)


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


def _memory(content: bytes) -> int:
    descriptor = os.memfd_create("request", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
