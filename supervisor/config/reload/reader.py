"""Processes that touch the configuration files, each within a deadline: file systems may hang, and the parent may not.

`Look` compares the files with what is known (`look`). The subclass in `resolver` reads them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence

import msgspec

from proto.common import interpreter
from proto.common.untrusted import decode_json
from supervisor.config.reload.look import Found, Request, seen_of

DEADLINE_S = 10.0
"""Reading a megabyte of YAML takes 2 s; a file system that hangs never answers."""


class Reader:
    """One run of a module's `main(request, result)`, two descriptors. `pidfd` becomes readable at its end."""

    def __init__(self, module: str, request: bytes, now: float, inherited: Sequence[int] = ()) -> None:
        """Raises OSError."""
        self.deadline = now + DEADLINE_S
        self.overdue = False
        asked = _memory(request)
        try:
            self._result = os.memfd_create("result", os.MFD_CLOEXEC)
        except OSError:
            os.close(asked)
            raise
        try:
            # A dup2 to itself makes a descriptor inheritable, in the new process only.
            actions = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in (asked, self._result, *inherited)]
            line = interpreter.command(module, str(asked), str(self._result))
            self.pid = os.posix_spawn(sys.executable, line, os.environ, file_actions=actions, setsigdef=_SIGNALS)
            self.pidfd = os.pidfd_open(self.pid)  # our child: the loop does not reap it before this returns
        except OSError:
            os.close(self._result)
            raise
        finally:
            os.close(asked)

    def kill(self) -> None:
        """Kill the process, which is over its time."""
        self.overdue = True
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return

    def content(self) -> bytes:
        """The process's output. Call after its end; closes the descriptors."""
        size = os.fstat(self._result).st_size
        content = os.pread(self._result, size, 0)
        self.close()
        return content

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._result)
        os.close(self.pidfd)


class Look(Reader):
    """One look at the files."""

    def __init__(self, request: Request, now: float) -> None:
        """Raises OSError."""
        inherited = [request["inotify"]] if request["inotify"] >= 0 else []
        super().__init__("supervisor.config.reload.look", json.dumps(request).encode(), now, inherited)

    def found(self) -> Found | None:
        """The result; None when it gave none. Call after its end."""
        try:
            found: Found = decode_json(self.content())
        except msgspec.DecodeError:
            return None
        return {**found, "seen": seen_of(found["seen"])}


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


def _memory(content: bytes) -> int:
    descriptor = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
