"""Reading a command's output, with a shell as the command."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time

import pytest

from actors.runtime.model import output

LONGEST_TIMEOUT_S = (1 << 31) - 1


def collect(script: str, timeout_s: float) -> tuple[bytes, bytes]:
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        return output.collect(process, time.monotonic() + timeout_s, 100)


@pytest.mark.parametrize("timeout_s", [LONGEST_TIMEOUT_S, float(1 << 63)])
def test_longest_timeout_of_a_command_is_kept(timeout_s: float) -> None:
    assert collect("echo out; echo err >&2", timeout_s) == (b"out\n", b"err\n")


def test_command_that_outlasts_one_wait_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LONGEST_WAIT_S", 0.01)
    assert collect("sleep 0.1; echo out", LONGEST_TIMEOUT_S) == (b"out\n", b"")


def test_pipe_is_read_after_a_late_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the command left holds the output open, and the reader got no turn until its time was over."""
    monkeypatch.setattr(output, "DRAIN_S", -1.0)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1024 * 1024)
    with subprocess.Popen(["head", "-c", "500000", "/dev/zero"], stdout=writer, stderr=subprocess.PIPE) as process:
        process.stdout = os.fdopen(reader, "rb")
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        said, _ = output.collect(process, None, 1_000_000)
    os.close(writer)
    assert len(said) == 500_000
