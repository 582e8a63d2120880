"""Real processes that stall, and their evidence, saved as the daemon does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import zmq

from proto.agent.actor import Dumped
from supervisor.process import evidence, samples
from supervisor.process.deaths import Deaths
from supervisor.process.links import Link
from supervisor.process.processes import DUMP_WAIT_S
from supervisor.process.stalls import Stall
from tests.harness import stop_process, wait_for
from tests.supervisor.process.stalling import NAME

ROOT = Path(__file__).resolve().parents[3]

KINDS = {
    "busy": "busy-loop",
    "read": "blocked-read",
    "write": "blocked-write",
    "lock": "lock",
    "deadlock": "deadlock",
    "stop": "stopped",
    "uninterruptible": "uninterruptible",
    "sleep": "sleep",
    "child": "child-process",
    "cri": "cri-call",
    "ask": "unanswered-ask",
    "flood": "flooded",
    "io": "io-blocked",
}
"""The way in which `stalling` stalls, and the name that the evidence must give it."""


MOST_BYTES = 1024 * 1024
WITHIN_S = 0.5


class Saved(NamedTuple):
    """Evidence on disk."""

    stall: Stall
    text: str
    size: int
    took_s: float


@contextmanager
def stalling(kind: str) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A process that stalls, in a run directory of its own."""
    with tempfile.TemporaryDirectory(prefix="nv-stall-", dir="/tmp") as directory:
        command = [sys.executable, "-m", "tests.supervisor.process.stalling", directory, kind]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "stalls\n"
                wait_for(lambda: settled(process.pid), 20, "only the thread that stalls runs")
                if kind == "stop":
                    stop_process(process.pid)
                yield Path(directory), process
            finally:
                os.killpg(process.pid, signal.SIGKILL)


def settled(pid: int) -> bool:
    """True when at most one thread used a CPU for a moment. faulthandler may crash while other threads run code."""
    before = {one.tid: one.cpu_ns for one in samples.take(pid).threads}
    time.sleep(0.02)
    now = {one.tid: one.cpu_ns for one in samples.take(pid).threads}
    return before.keys() == now.keys() and sum(before[tid] != cpu_ns for tid, cpu_ns in now.items()) <= 1


def save(run_dir: Path, pid: int) -> Saved:
    """Save evidence as the daemon does: sample, SIGUSR2, Dump, and the rest after its answer or DUMP_WAIT_S."""
    began = time.monotonic()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    link = Link(context, f"{run_dir}/{NAME}.sock")
    link.ping()  # as the watchdog does before
    begun = evidence.begin(run_dir, pid, NAME)
    os.kill(pid, signal.SIGUSR2)
    link.dump()
    dumped: Dumped | None = None
    due = began + DUMP_WAIT_S
    while (left_s := due - time.monotonic()) > 0:
        if dumped is None and link.socket.poll(left_s * 1000):
            dumped = next((one for one in link.read() if isinstance(one, Dumped)), None)
            due = min(due, begun.sample.at + evidence.SAMPLE_S)
        elif dumped is not None:
            time.sleep(left_s)
    path, stall = Deaths(run_dir / "deaths").write_evidence(NAME, 1, pid, "hangs", dumped, begun)
    took_s = time.monotonic() - began
    link.close()
    context.term()
    stacks = Path(path).with_suffix(".stacks")
    return Saved(stall, Path(path).read_text(), Path(path).stat().st_size + stacks.stat().st_size, took_s)


def saved_as(run_dir: Path, pid: int, kind: str) -> Saved:
    """Evidence that names this kind. The first may not, since the process may not be in its stall yet."""
    names: list[str] = []
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = save(run_dir, pid)
        if found.stall.kind == kind:
            return found
        names.append(str(found.stall))
    raise AssertionError(f"not named {kind}: {names[-3:]}\n{found.text}")
