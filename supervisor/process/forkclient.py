"""Starts one forkserver process, sends it requests and reads its reports. The supervisor's side of `forkserver`.

The agent's first forkserver is a fork of the agent, so that both share the interpreter and common imports in memory. It
is made before there is any thread, ZeroMQ context or socket to copy. Its successors are new interpreters.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import logging
import os
import signal
import socket
import sys
import traceback
from collections import deque
from dataclasses import dataclass
from typing import NoReturn

import msgpack
import msgspec

from proto.agent.settings import Settings
from proto.common.interpreter import UTF8, clear_type_cache
from proto.common.machine import procfs
from supervisor.process import forkserver
from supervisor.process.forkserver import PACKET_BYTES, Init

log = logging.getLogger(__name__)

ANSWER_DEADLINE_S = 3.0
"""A forkserver without an answer for this long is replaced. A fork takes milliseconds."""
LOAD_S = 60.0
"""Time for the imports of a forkserver, unless its predecessors needed more."""

ENVIRONMENT = {
    # glibc makes an arena for each thread that allocates at the same time as another. Children do not share arenas.
    "MALLOC_ARENA_MAX": "2",
    # glibc raises this threshold when the first large block is freed, and then keeps freed blocks in the heap:
    # megabytes after one request for all containers' figures.
    "MALLOC_MMAP_THRESHOLD_": "131072",
    # The forkserver never opens a channel, so gRPC's fork handlers have nothing to do.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # Without the event engine, the thread that waits for an answer also polls the socket: 4 wake-ups of threads for a
    # call in place of 11, and two thirds of the CPU time.
    "GRPC_EXPERIMENTS": "-event_engine_client",
}
"""Variables for the forkserver and its children. A process that forks the first forkserver must have them, too."""
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from supervisor.process.forkserver import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
"""Not `-m`: the forkserver sees exactly the supervisor's import path, in any working directory."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The forkserver has imported everything. `errors` by module."""

    errors: dict[str, str]


@dataclass(frozen=True, slots=True)
class ChildForked:
    """A process was forked. The receiver closes `pidfd`."""

    name: str
    incarnation: int
    pid: int
    pidfd: int


@dataclass(frozen=True, slots=True)
class ForkFailed:
    """A fork failed."""

    name: str
    incarnation: int
    error: str


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """A process of this agent ended, or a signal stopped or continued it; as waitpid(2) tells."""

    pid: int
    wait_status: int


Report = Loaded | ChildForked | ForkFailed | StatusChanged


class ForkClient:
    """A running forkserver. Requests before its imports are done wait in its socket."""

    def __init__(
        self,
        settings: Settings,
        preload: tuple[str, ...],
        entry: str,
        now: float,
        *,
        by_fork: bool = False,
        listeners: tuple[int, ...] = (),
        load_s: float = LOAD_S,
    ) -> None:
        """`by_fork` copies this process, which must have one thread and no ZeroMQ context.

        `listeners`: descriptors that the forkserver gets, too, as in Init.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock = ours
        self._load_s = load_s
        self.loaded = False
        self.unanswered: deque[tuple[str, int]] = deque()
        """Forks requested and not answered, oldest first."""
        self.unclear = False
        """A report could not be read, so the supervisor may not know of a child. Only its replacement helps."""
        self._waiting_since = now
        with theirs:
            kept = (theirs.fileno(), *listeners)
            for descriptor in kept:
                os.set_inheritable(descriptor, True)
            self.pid = _fork(kept) if by_fork else _spawn(theirs.fileno())
            for descriptor in listeners:
                os.set_inheritable(descriptor, False)
        self.pidfd = os.pidfd_open(self.pid)
        init = Init(settings=settings, preload=preload, entry=entry, listeners=listeners)
        self._sock.setblocking(False)
        self._sock.send(msgspec.msgpack.encode(init))

    def fileno(self) -> int:
        """The socket, for polling."""
        return self._sock.fileno()

    def fork(self, name: str, incarnation: int, now: float) -> bool:
        """Request a child. False if the request cannot be sent: the forkserver has ended or is stuck."""
        if self.loaded and not self.unanswered:
            self._waiting_since = now
        self.unanswered.append((name, incarnation))
        try:
            self._sock.send(msgpack.packb(["fork", name, incarnation]))
        except OSError:
            return False
        return True

    def use(self, settings: Settings) -> bool:
        """Use these settings for every child requested from now on. False as for `fork`."""
        try:
            self._sock.send(msgpack.packb(["settings", msgspec.msgpack.encode(settings)]))
        except OSError:
            return False
        return True

    def deadline(self) -> float | None:
        """The monotonic time of its next answer at the latest; None while it owes none."""
        if not self.loaded:
            return self._waiting_since + self._load_s
        return self._waiting_since + ANSWER_DEADLINE_S if self.unanswered else None

    def read(self, now: float) -> list[Report] | None:
        """Every report that has arrived; None once the other end is closed."""
        reports: list[Report] = []
        while True:
            try:
                packet, fds, _, _ = socket.recv_fds(self._sock, PACKET_BYTES, 4)
            except BlockingIOError:
                return reports
            except OSError:
                return reports or None
            if not packet:
                return reports or None
            self._waiting_since = now
            try:
                reports.append(self._report(msgpack.unpackb(packet), fds))
            except Exception as error:  # the other packets must not be lost with this one
                log.error("cannot read a report of the forkserver, replacing it: %s: %s", type(error).__name__, error)
                self.unclear = True
            for descriptor in fds:
                os.close(descriptor)

    def _report(self, packet: object, fds: list[int]) -> Report:
        """The report in a packet. Takes its descriptor out of `fds`. Raises any exception for a damaged packet."""
        match packet:
            case ["loaded", dict(errors)]:
                self.loaded = True
                return Loaded(errors)
            case ["forked", str(name), int(incarnation), int(pid)]:
                pidfd = fds.pop(0) if fds else self._opened(pid)
                os.set_inheritable(pidfd, False)
                self._answered(name, incarnation)
                return ChildForked(name, incarnation, pid, pidfd)
            case ["failed", str(name), int(incarnation), str(error)]:
                self._answered(name, incarnation)
                return ForkFailed(name, incarnation, error)
            case ["exited", int(pid), int(status)]:
                return StatusChanged(pid, status)
        raise ValueError(f"it is {packet!r}")

    def _opened(self, pid: int) -> int:
        """A pidfd of the forkserver's child whose own the kernel dropped, for lack of free descriptors here.

        Raises OSError when there is none free still, or when the pid is no child's any more.
        """
        pidfd = os.pidfd_open(pid)
        if pid not in procfs.children(self.pid):  # reaped by the forkserver, the pid may be another process's
            os.close(pidfd)
            raise ProcessLookupError(f"{pid} is no child of the forkserver")
        return pidfd

    def _answered(self, name: str, incarnation: int) -> None:
        with contextlib.suppress(ValueError):  # not requested: the supervisor ends such a process
            self.unanswered.remove((name, incarnation))

    def close(self) -> None:
        """Close the socket and the pidfd. A forkserver that still runs then ends."""
        self._sock.close()
        os.close(self.pidfd)


def _spawn(socket_fd: int) -> int:
    argv = [sys.executable, *UTF8, "-P", "-c", _BOOT, json.dumps(sys.path), str(socket_fd), str(os.getpid())]
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawn(sys.executable, argv, {**os.environ, **ENVIRONMENT}, file_actions=[null])


def _fork(kept: tuple[int, ...]) -> int:
    supervisor = os.getpid()
    # Garbage collection then writes to no shared object. The type cache holds references: releasing them later would
    # copy pages on both sides.
    gc.freeze()
    clear_type_cache()
    pid = os.fork()
    if pid == 0:
        _serve(kept, supervisor)
    return pid


def _serve(kept: tuple[int, ...], supervisor: int) -> NoReturn:
    """Be the forkserver, with only `kept` of the supervisor's open files; the first of them is the socket."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for below, above in itertools.pairwise((2, *sorted(kept), os.sysconf("SC_OPEN_MAX"))):
            os.closerange(below + 1, above)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a supervisor that has just been replaced blocks some
        forkserver.main(kept[0], supervisor)
        code = 0
    except SystemExit:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
