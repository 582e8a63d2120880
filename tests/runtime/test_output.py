"""Reading a command's output, with a shell as the command."""

from __future__ import annotations

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
