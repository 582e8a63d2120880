"""The guard tells deaths, hangs, growth and wrong acceptance, and keeps the input that did it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FEEDS = {
    "death": ("os.kill(os.getpid(), 11)", "", -11),
    "hang": ("guard.time.sleep(60)", "Timeout", 1),
    "endless loop": ("all(True for _ in iter(int, 1))", "most recent call first", -27),
    "growth": ("bytearray(b'x' * 100_000_000)", "MB for 5 bytes", 1),
    "no memory": ("bytearray(b'x' * 10_000_000_000)", "more memory than there is", 1),
    "unexpected exception": ("int(data)", "invalid literal", 1),
    "wrong acceptance": ("exec('assert False, 1')", "accepts what it must refuse", 1),
}
PROGRAM = """
import os, sys
from pathlib import Path
from tests.fuzz import guard
from tests.fuzz.target import Target
guard.DEADLINE_S, guard.CPU_S = {deadline_s}, {cpu_s}
guard.time = __import__("time")
with guard.Guard(Target("t", lambda data: {feed}, ()), Path(sys.argv[1])) as fed:
    fed.feed(b"input")
"""


@pytest.mark.parametrize("fault", FEEDS)
def test_guard_tells_fault_and_keeps_input(fault: str, tmp_path: Path) -> None:
    feed, words, code = FEEDS[fault]
    command = [
        sys.executable,
        "-c",
        PROGRAM.format(feed=feed, deadline_s=0.5 if fault == "hang" else 20, cpu_s=0.5 if "loop" in fault else 20),
        tmp_path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    assert done.returncode == code
    assert words in done.stderr
    assert [path.read_bytes() for path in tmp_path.iterdir()][:1] == [b"input"]


def test_guard_passes_refusals(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.format(feed="None", deadline_s=20, cpu_s=20), tmp_path]
    subprocess.run(command, check=True, timeout=60)
    assert not list(tmp_path.iterdir())
