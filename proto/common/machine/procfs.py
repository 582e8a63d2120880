"""Reads facts of a process from /proc. Each function returns an empty value if the process is gone or unreadable."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CHUNK = 16384


def _read(pid: int, name: str) -> str:
    """A file's text. Without Python's text files, which take three times as long: the supervisor reads much here."""
    found = []
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while chunk := os.read(file, _CHUNK):
                found.append(chunk)
        finally:
            os.close(file)
    except OSError:
        return ""
    return b"".join(found).decode(errors="replace")


def start_time(pid: int) -> int:
    """Clock ticks from boot to the process's start (proc(5), stat field 22); 0 if there is no such process.

    Pid and start time identify a process for good: a pid alone is reused.
    """
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0


def boot_time() -> float:
    """Unix time of the machine's start; 0 if unknown."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), 0.0)


def parent(pid: int) -> int:
    """The parent's pid; 0 if there is no such process."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def title(pid: int) -> str:
    """The command line as `ps` shows it, which setproctitle may have replaced."""
    return _read(pid, "cmdline").replace("\0", " ").strip()


def children(pid: int) -> list[int]:
    """The process's children; empty where the kernel does not list them."""
    return [int(child) for child in _read(pid, f"task/{pid}/children").split()]


def has_open(pid: int, path: Path) -> bool:
    """True when the process has this file open. False without the right to see it."""
    try:
        wanted, numbers = path.stat(), os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for number in numbers:
        link = f"/proc/{pid}/fd/{number}"
        with contextlib.suppress(OSError):  # it has closed another file meanwhile
            # By name first: a stat of a file of a server that does not answer would not return.
            if os.path.basename(os.readlink(link)) == path.name and os.path.samestat(os.stat(link), wanted):
                return True
    return False


def pss_kib(pid: int) -> int:
    """Proportional set size in KiB: a page shared by n processes counts 1/n. 0 if unknown. Takes about 1 ms."""
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def anonymous_kib(pid: int) -> int:
    """Anonymous memory in KiB, also what is in swap or shared with the process that forked it. 0 if unknown."""
    found = 0
    for line in _read(pid, "status").splitlines():
        if line.startswith(("RssAnon:", "VmSwap:")):
            found += int(line.split()[1])
    return found


def cpu_s(pid: int) -> float:
    """CPU time of a process in seconds, of user and kernel. 0 if unknown."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if len(fields) > 12 else 0.0


def waits(pid: int) -> str:
    """Name, state and wait channel of each thread, and its kernel stack if readable."""
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
