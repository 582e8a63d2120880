"""ExecSync without descriptors; `sleep` stands in for its OCI runtime and the command."""

from __future__ import annotations

import errno
import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from actors.runtime.containers import exec_sync
from actors.runtime.model.errors import RpcError
from actors.runtime.model.processes import Process, start_ticks
from tests.descriptors import opened


class Sleeping:
    """A command that runs for longer than a test; its process is its OCI runtime's."""

    line = ("sleep", "1000")

    def pipe(self) -> tuple[int, int]:
        return os.pipe2(os.O_CLOEXEC)

    def give(self, _: int) -> None:
        pass

    def wait_started(self, _: object) -> None:
        pass

    def process(self, oci: subprocess.Popen[bytes]) -> Process:
        return Process(oci.pid, start_ticks(oci.pid))

    def remove_files(self) -> None:
        pass


def test_command_that_cannot_be_read_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rpc would wait for as long as it runs."""
    monkeypatch.setattr(exec_sync, "ExecCommand", lambda *_, **__: Sleeping())
    before, pidfd_open = opened(), os.pidfd_open

    def limited(pid: int) -> int:
        """No descriptor is free while the command's output is open."""
        if opened() - before:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pidfd_open(pid)

    monkeypatch.setattr(os, "pidfd_open", limited)
    container: Any = SimpleNamespace(record=SimpleNamespace(id="c"), require_running=lambda: None)
    with pytest.raises(RpcError, match=r"cannot run a command in container c: .*open files"):
        exec_sync.exec_sync(None, container, ["true"], 0.0, lambda _: None)  # type: ignore[arg-type]
