"""Evidence of a hung child: two samples of its threads, its wait records and the answer of its I/O thread.

It begins when the watchdog gives a child up, and is written a moment later, before the child is killed.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from proto.agent.actor import Dumped
from proto.waits import table
from proto.waits.chain import seconds
from proto.waits.record import RUNNING, Wait
from proto.waits.table import Table
from supervisor.process import samples, stalls
from supervisor.process.samples import Sample, Thread
from supervisor.process.stalls import Seen, Stall

SAMPLE_S = 0.1
"""Time between the samples, when the child's part is there earlier."""
MAX_BYTES = 256 * 1024
"""Of a record, without the Python stacks, which faulthandler bounds by itself."""
MAX_STACKS = 512 * 1024
MOST_WAITS = 20
CALLS = ("ask", "cri", "http", "helper", "blocking")


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The first half of the evidence."""

    sample: Sample
    table: Table | None


def begin(run_dir: Path, pid: int, name: str) -> Begun:
    """Take the first sample."""
    return Begun(sample=samples.take(pid), table=_own(table.read(run_dir / "waits" / name), pid))


def finish(run_dir: Path, pid: int, name: str, begun: Begun, stacks: Path, dumped: Dumped | None) -> tuple[Stall, str]:
    """Take the second sample. Returns the stall, and the text of the evidence."""
    now = _own(table.read(run_dir / "waits" / name), pid)
    sample = samples.take(pid)
    seen = Seen(
        first=begun.sample,
        last=sample,
        table=now,
        table_before=begun.table,
        stacks=_tail(stacks),
        answered=dumped is not None,
    )
    stall = stalls.name(seen)
    text = "\n".join(
        [f"Stall: {stall.kind}: {stall.text}", "", *_waits(now), "Threads:", *map(_thread, sample.threads)]
    )
    return stall, text[:MAX_BYTES]


def _own(found: Table | None, pid: int) -> Table | None:
    return found if found is not None and found.pid == pid else None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_STACKS).decode(errors="replace")
    except OSError:
        return ""


def in_flight(found: Table | None) -> tuple[str, tuple[str, ...]]:
    """The message in a process's handler, and its calls in flight, the longest first."""
    if found is None:
        return "", ()
    running = next((wait.what for wait in found.waits if wait.target == RUNNING), "")
    calls = sorted((wait for wait in found.waits if wait.kind in CALLS), key=_since)
    return running, tuple(f"{wait.kind} {wait.target} {wait.what}" for wait in calls[:MOST_WAITS])


def _since(wait: Wait) -> float:
    return wait.since


def _waits(found: Table | None) -> list[str]:
    if found is None:
        return ["No wait records.", ""]
    now = time.monotonic()
    lines = [f"Mailbox: {found.mailbox} messages wait, {found.handled} were handled", "Waits:"]
    for wait in sorted(found.waits, key=_since)[:MOST_WAITS]:
        lines.append(f"  {wait.kind} {wait.target} {wait.what}, for {seconds(now - wait.since)} {wait.error}".rstrip())
    return [*lines, ""]


def _thread(one: Thread) -> str:
    line = f"thread {one.tid} {one.name}: {one.state}, wchan {one.wchan or '?'}, system call {one.syscall}"
    return f"{line}\n{one.stack}" if one.stack else line
