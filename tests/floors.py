"""Times of known work on the machine as busy as it is now; limits of other tests follow them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from tests.harness import PATIENCE

EFFECTIVE_S = 1.0
EFFECTIVE_STARTS = 6
"""A change is in force after so many starts of a bare interpreter, on a machine so busy that they take over a second.
It needs two processes: the reader of the files, and the actor."""


def interpreter_s() -> float:
    """Measure a Python process that imports some modules: below 0.1 s on a quiet machine."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import click, msgspec, yaml, zmq"], check=True)
    return time.monotonic() - began


def effective_limit_s() -> float:
    """The longest time until a changed file is in force."""
    return max(EFFECTIVE_S * PATIENCE, EFFECTIVE_STARTS * interpreter_s())


def cpu_waits_s(pid: int, tid: int | str = "*") -> dict[str, float]:
    """By thread: the time that it was ready to run and did not (schedstat of proc(5))."""
    waits = {}
    for file in Path(f"/proc/{pid}/task").glob(f"{tid}/schedstat"):
        with contextlib.suppress(OSError):  # it ends now
            waits[file.parent.name] = int(file.read_text().split()[1]) / 1e9
    return waits


def longest_wait_s(before: dict[str, float], after: dict[str, float]) -> float:
    """The longest wait of one thread between two answers of `cpu_waits_s`. A new thread's wait counts whole."""
    return max((waited_s - before.get(thread, 0.0) for thread, waited_s in after.items()), default=0.0)
