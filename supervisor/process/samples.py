"""Samples of a child's threads from /proc: state, system call, CPU time. Two of them show what a hung child does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

MOST_THREADS = 64
MAX_STACK = 4000


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread at one time."""

    tid: int
    name: str = ""
    state: str = ""
    """R, S, D, T, t, Z, as in proc(5)."""
    wchan: str = ""
    syscall: int = -1
    """The number of the system call that it is in; -1: none, or unknown."""
    argument: int = 0
    """The first argument: a descriptor for calls that read or write."""
    stack_pointer: int = 0
    """Within a system call. It is below the thread's pthread_t, which faulthandler prints."""
    cpu_ns: int = 0
    waited_ns: int = 0
    """Time it could have run and had no CPU."""
    faults: int = 0
    """Page faults that read from a disk."""
    stack: str = ""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A process at one time."""

    at: float
    """Monotonic seconds."""
    threads: tuple[Thread, ...] = ()
    swapped_kib: int = 0
    resident_kib: int = 0
    files: dict[int, str] = {}
    """Descriptors that threads are in a system call with, and what they are open on."""


def take(pid: int) -> Sample:
    """Read a sample. Takes some milliseconds; empty when the process is gone."""
    try:
        tids = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))[:MOST_THREADS]
    except OSError:
        return Sample(at=time.monotonic())
    threads = tuple(_thread(f"/proc/{pid}/task/{tid}", tid) for tid in tids)
    status = dict(line.split(":", 1) for line in _read(f"/proc/{pid}/status").splitlines() if ":" in line)
    files = {one.argument: _link(f"/proc/{pid}/fd/{one.argument}") for one in threads if 0 <= one.argument < 1 << 20}
    return Sample(
        at=time.monotonic(),
        threads=threads,
        swapped_kib=_kib(status.get("VmSwap", "")),
        resident_kib=_kib(status.get("VmRSS", "")),
        files={fd: target for fd, target in files.items() if target},
    )


def _thread(base: str, tid: int) -> Thread:
    stat = _read(f"{base}/stat")
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 10:
        return Thread(tid=tid)
    times = _read(f"{base}/schedstat").split()
    call = _read(f"{base}/syscall").split()
    number = int(call[0]) if call and call[0].lstrip("-").isdecimal() else -1
    return Thread(
        tid=tid,
        name=stat.partition("(")[2].rpartition(")")[0],
        state=fields[0],
        wchan=_read(f"{base}/wchan").strip(),
        syscall=number,
        argument=int(call[1], 16) if number >= 0 and len(call) > 1 else -1,
        stack_pointer=int(call[-2], 16) if number >= 0 and len(call) > 2 else 0,
        cpu_ns=int(times[0]) if times else 0,
        waited_ns=int(times[1]) if len(times) > 1 else 0,
        faults=int(fields[9]),
        stack=_read(f"{base}/stack")[:MAX_STACK].rstrip(),
    )


def _kib(text: str) -> int:
    words = text.split()
    return int(words[0]) if words and words[0].isdecimal() else 0


def _link(path: str) -> str:
    try:
        target = os.readlink(path)
    except OSError:
        return ""
    return os.fsencode(target).decode(errors="backslashreplace")[:200]  # a path may be any bytes, and JSON may not


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
