"""The table of running children: pid, pidfd, link and pending evidence of each. Makes no decision."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import zmq

from proto.agent.actor import Dumped, MemoryUse
from proto.common.machine import procfs
from supervisor.process.evidence import Begun
from supervisor.process.links import Link

STATUS_WAIT_S = 1.8
"""Longest time from a child's end, seen by its pidfd, to its exit status. The forkserver must be scheduled first, which
takes long on a busy machine. Less than process_tree.KILL_WAIT_S: a killed child is not written off meanwhile."""
DUMP_WAIT_S = 0.3
"""The wait for the part of the evidence that a hung child's I/O thread adds."""

MEMORY_WAIT_S = 4.0
"""The wait for what a large process consists of. Less than supervision.memory.EVIDENCE_WAIT_S."""

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Become the parent of orphaned descendants, prctl(2): without a forkserver, actors' exit statuses come here."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass(slots=True)
class Process:
    """A running incarnation. Times are monotonic."""

    name: str
    incarnation: int
    pid: int
    pidfd: int
    start_time: int
    link: Link | None = None
    gone_at: float | None = None
    """The time at which the pidfd showed its end; the exit status follows."""
    evidence_due: float | None = None
    """When the evidence is written, with or without the child's part."""
    why: str = ""
    dumped: Dumped | None = None
    begun: Begun | None = None
    """The evidence's first half, of a hung child."""
    sizes: tuple[str, ...] = ()
    """The sizes over time, of one past its memory ceiling."""
    memory: MemoryUse | None = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)


class Processes:
    """All running children, with their file descriptors in the poller."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], poller: zmq.Poller, run_dir: str) -> None:
        self._context = context
        self._poller = poller
        self._run_dir = run_dir
        self.by_name: dict[str, Process] = {}
        self.written_off: set[int] = set()
        """Pids of processes that SIGKILL did not end. A later exit is only logged."""

    def add(self, name: str, incarnation: int, pid: int, pidfd: int) -> Process:
        """Add a forked child."""
        process = Process(name, incarnation, pid, pidfd, procfs.start_time(pid))
        self.by_name[name] = process
        self._poller.register(pidfd, zmq.POLLIN)
        return process

    def get(self, name: str, incarnation: int) -> Process | None:
        """The process of the present incarnation; None for any other incarnation."""
        process = self.by_name.get(name)
        return process if process is not None and process.incarnation == incarnation else None

    def with_pid(self, pid: int) -> Process | None:
        """The child with this pid."""
        return next((process for process in self.by_name.values() if process.pid == pid), None)

    def link(self, process: Process) -> Link:
        """The link to a process, opened at first use."""
        if process.link is None:
            process.link = Link(self._context, f"{self._run_dir}/{process.name}.sock")
            self._poller.register(process.link.socket, zmq.POLLIN)
        return process.link

    def ask_for_evidence(self, process: Process, why: str) -> None:
        """Ask a hung process for its stacks and its I/O thread's view; the supervisor's part is due soon after."""
        process.why, process.dumped = why, None
        process.evidence_due = time.monotonic() + DUMP_WAIT_S
        process.signal(signal.SIGUSR2)
        self.link(process).dump()

    def ask_for_memory(self, process: Process, why: str, sizes: tuple[str, ...]) -> None:
        """Ask a process past its memory ceiling what it consists of."""
        process.why, process.sizes, process.begun, process.memory = why, sizes, None, None
        process.evidence_due = time.monotonic() + MEMORY_WAIT_S
        self.link(process).ask_for_memory()

    def mark_gone(self, process: Process, now: float) -> None:
        """Note that its pidfd became readable, and stop polling it."""
        process.gone_at = now
        self._poller.unregister(process.pidfd)

    def without_status(self, now: float) -> list[Process]:
        """Processes that have ended, and whose exit status has not come in time."""
        ended = [process for process in self.by_name.values() if process.gone_at is not None]
        return [process for process in ended if now >= (process.gone_at or 0.0) + STATUS_WAIT_S]

    def reaped(self) -> list[Process]:
        """Processes that have ended, and that their parent has reaped. Only it knows the exit status."""
        ended = [process for process in self.by_name.values() if process.gone_at is not None]
        return [process for process in ended if procfs.start_time(process.pid) != process.start_time]

    def remove(self, process: Process) -> None:
        """Remove a process and close its descriptors."""
        if process.gone_at is None:
            self._poller.unregister(process.pidfd)
        os.close(process.pidfd)
        if process.link is not None:
            self._poller.unregister(process.link.socket)
            process.link.close()
        del self.by_name[process.name]

    def deadlines(self) -> Iterator[float]:
        """Monotonic times at which the loop must check a process without input."""
        for process in self.by_name.values():
            if process.gone_at is not None:
                yield process.gone_at + STATUS_WAIT_S
            if process.evidence_due is not None:
                yield process.evidence_due
