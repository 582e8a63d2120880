"""The search for a sandbox's shim among processes that choose their own names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from actors._host.shim import end_shim
from tests.harness import wait_for

NAMED = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(errors="surrogateescape"), 0, 0, 0)
print(flush=True)
time.sleep(60)
"""


def named(name: bytes, argument: str) -> subprocess.Popen[bytes]:
    """A process with this comm and argument."""
    process = subprocess.Popen([sys.executable, "-c", NAMED, name, argument], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.communicate()


def test_shim_is_found_beside_names_that_are_no_text(processes: list[subprocess.Popen[bytes]]) -> None:
    sandbox = f"sandbox-of-{id(processes)}"
    processes += [named(b"\xff\r\n", sandbox), named(b"containerd-shim", "other"), named(b"containerd-shim", sandbox)]
    assert end_shim(sandbox)
    wait_for(lambda: processes[2].poll() is not None, 10, "the shim ends")
    assert [one.poll() for one in processes[:2]] == [None, None]
    processes.pop().communicate()
    assert not end_shim(sandbox)
