"""Facts of another process, read while it changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from proto.common.machine import procfs

LOOKS = 2000
SCRIPT = """
import os, sys
others = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
kept = open(sys.argv[1])
print(flush=True)
while True:
    for one in others:
        os.close(one)
    others = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
"""
"""Keeps a file open, and closes and opens others with lower numbers."""


def test_open_file_is_seen_while_others_are_closed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    command = [sys.executable, "-c", SCRIPT, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            assert all(procfs.has_open(process.pid, lock) for _ in range(LOOKS))
        finally:
            process.kill()
    assert not procfs.has_open(process.pid, lock)
