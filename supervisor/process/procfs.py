"""What /proc says of a process. Every function takes a process that is gone, or not ours to see, for an answer."""

from __future__ import annotations

import os
from pathlib import Path


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def start_time(pid: int) -> int:
    """Clock ticks after boot at which the process started (proc(5), stat field 22); 0 if there is no such process.

    Together with the pid it names a process for good: pids are used again, the pair is not.
    """
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0


def parent(pid: int) -> int:
    """The parent's pid; 0 if there is no such process."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def title(pid: int) -> str:
    """What `ps` shows: the command line, or what setproctitle made of it."""
    return _read(pid, "cmdline").replace("\0", " ").strip()


def children(pid: int) -> list[int]:
    """The process's children; empty where the kernel does not list them."""
    return [int(child) for child in _read(pid, f"task/{pid}/children").split()]


def pss_kib(pid: int) -> int:
    """Proportional set size in KiB: each shared page counted by its share; 0 if unknown. Costs about 1 ms."""
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def waits(pid: int) -> str:
    """Where each thread stands in the kernel: name, state, system call wait channel and kernel stack if readable."""
    lines: list[str] = []
    try:
        threads = sorted(int(thread) for thread in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return "no such process\n"
    for thread in threads:
        base = f"task/{thread}"
        status = _read(pid, f"{base}/status")
        state = next((line[6:].strip() for line in status.splitlines() if line.startswith("State:")), "gone")
        name = _read(pid, f"{base}/comm").strip()
        lines.append(f"thread {thread} {name}: {state}, wchan {_read(pid, f'{base}/wchan').strip() or '?'}")
        lines.append(_read(pid, f"{base}/stack").rstrip())
    return "\n".join(line for line in lines if line) + "\n"
