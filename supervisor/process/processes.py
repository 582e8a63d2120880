"""The running children as the kernel and their sockets show them: pids, pidfds, lines, evidence under way.

What the daemon holds per process, and the few system calls on it. No decision is made here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import zmq

from proto.agent.actor import Dumped
from supervisor.process import procfs
from supervisor.process.links import Link

STATUS_WAIT_S = 1.0
"""How long after its pidfd says so a child's exit status may take to come by way of the forkserver, which on a busy
machine has to have its turn first; while it has none, nobody could be forked either. Less than tree.KILL_WAIT_S."""
DUMP_WAIT_S = 0.3
"""How long a hung child's I/O thread has for its part of the evidence."""

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Adopt what is orphaned below us, prctl(2): when the forkserver dies, the actors' exit statuses come to us."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass(slots=True)
class Process:
    """One incarnation that has a process. Times are monotonic."""

    name: str
    incarnation: int
    pid: int
    pidfd: int
    start_time: int
    link: Link | None = None
    gone_at: float | None = None
    """When the pidfd told of its end; the exit status is awaited."""
    evidence_due: float | None = None
    """When the evidence is written with or without the child's own part."""
    why: str = ""
    dumped: Dumped | None = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; one that is gone already gets none."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)


class Processes:
    """All of them, by name and by pid, and their file descriptors in the poller."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], poller: zmq.Poller, run_dir: str) -> None:
        self._context = context
        self._poller = poller
        self._run_dir = run_dir
        self.by_name: dict[str, Process] = {}
        self.written_off: set[int] = set()
        """Pids of processes that did not end; their exit, if it ever comes, is only noted."""

    def add(self, name: str, incarnation: int, pid: int, pidfd: int) -> Process:
        """A child was forked."""
        process = Process(name, incarnation, pid, pidfd, procfs.start_time(pid))
        self.by_name[name] = process
        self._poller.register(pidfd, zmq.POLLIN)
        return process

    def get(self, name: str, incarnation: int) -> Process | None:
        """That incarnation's process, if it has one and it is the present one."""
        process = self.by_name.get(name)
        return process if process is not None and process.incarnation == incarnation else None

    def with_pid(self, pid: int) -> Process | None:
        """The child with this pid."""
        return next((process for process in self.by_name.values() if process.pid == pid), None)

    def link(self, process: Process) -> Link:
        """The line to its inbox, opened at first use."""
        if process.link is None:
            process.link = Link(self._context, f"{self._run_dir}/{process.name}.sock")
            self._poller.register(process.link.socket, zmq.POLLIN)
        return process.link

    def mark_gone(self, process: Process, now: float) -> None:
        """Its pidfd became readable: no need to look at it again."""
        process.gone_at = now
        self._poller.unregister(process.pidfd)

    def remove(self, process: Process) -> None:
        """Close everything that belongs to an incarnation that is over."""
        if process.gone_at is None:
            self._poller.unregister(process.pidfd)
        os.close(process.pidfd)
        if process.link is not None:
            self._poller.unregister(process.link.socket)
            process.link.close()
        del self.by_name[process.name]

    def deadlines(self) -> Iterator[float]:
        """When `daemon` must look at one although nothing came in."""
        for process in self.by_name.values():
            if process.gone_at is not None:
                yield process.gone_at + STATUS_WAIT_S
            if process.evidence_due is not None:
                yield process.evidence_due
