"""Evidence of a hung child: two samples of its threads, its wait records and the answer of its I/O thread.

It begins when the watchdog gives a child up, and is written a moment later, before the child is killed. Of a child past
its memory ceiling, it is what the memory consists of.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from proto.agent.actor import Dumped, MemoryUse
from proto.common.machine import procfs
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


# Memory


def size(run_dir: Path, pid: int, name: str, mailbox: int, ceiling_mib: int) -> tuple[int, str]:
    """A child's size in KiB, and its work under way if it is past the ceiling."""
    kib = procfs.anonymous_kib(pid) if ceiling_mib else 0
    return kib, _work(run_dir, pid, name, mailbox) if ceiling_mib and kib >= ceiling_mib * 1024 else ""


def _work(run_dir: Path, pid: int, name: str, mailbox: int) -> str:
    """A message or call that a restart would interrupt; empty for none."""
    if mailbox:
        return f"{mailbox} messages in the mailbox"
    found = _own(table.read(run_dir / "waits" / name), pid)
    waits = found.waits if found is not None else ()
    calls = [one for one in waits if one.kind in CALLS or (one.kind == "handler" and one.target != RUNNING)]
    first = min(calls, key=_since, default=None)
    return " ".join(filter(None, (first.kind, first.target, first.what))) if first is not None else ""


def growth(use: MemoryUse | None, sizes: Iterable[str]) -> str:
    """The evidence of a child past its ceiling: sizes since the start, and what the memory consists of."""
    lines = ["Anonymous memory since its start:", *sizes, ""]
    if use is None:
        return "\n".join([*lines, "What it consists of: no answer", ""])
    share = "" if use.examined == use.objects else f", of a sample of {use.examined}"
    lines.append(f"Largest types of {use.objects} objects since the fork{share}:")
    lines += [f"{one.kib:10} KiB in {one.count:8} {one.type}" for one in use.types]
    lines += ["", "Lines that allocated most (tracemalloc):"]
    lines += use.allocations or ("not traced; start the agent with PYTHONTRACEMALLOC=1 in its environment",)
    return "\n".join([*lines, ""])
