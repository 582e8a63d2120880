"""The client of the monitor: finds or starts it, sends requests, receives exits, notices its end.

The monitor and its packets are described in actors/runtime/monitor.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import actors
from actors._base.messaging.futures import Future
from proto.common.interpreter import UTF8

PACKET_BYTES = 262144
ANSWER_S = 120.0
"""A container's start takes longest: the OCI runtime on a busy machine."""
MEET_S = 10.0
"""The monitor's loop is quick, but the machine may be busy."""
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from actors.runtime.monitor.loop import main; main(sys.argv[2:])"
Answer = tuple[tuple[str, ...], list[int]]
"""(fields, descriptors that came with them)"""
log = logging.getLogger(__name__)


class MonitorError(Exception):
    """The monitor failed; the message is its own or the OCI runtime's."""


class MonitorLost(MonitorError):
    """The monitor ended before it replied. The container's files show whether it did the request."""


class MonitorClient:
    """One connection to the monitor. Safe from any thread."""

    def __init__(self, path: Path, on_exited: Callable[[str, int, int], None], on_lost: Callable[[], None]) -> None:
        """`path` is its socket. Callbacks run in the reader's thread. After `on_lost` a new client is needed."""
        self._path = path
        self._on_exited = on_exited
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._pending: dict[str, Future[Answer]] = {}
        self._lock = threading.Lock()
        self._lost = False
        self._process: subprocess.Popen[bytes] | None = None
        self.adopted = True
        """True if the monitor was already running."""
        self._socket = self._meet() or self._start()
        threading.Thread(target=self._read, name="monitor", daemon=True).start()

    def _meet(self) -> socket.socket | None:
        """Connect to a running monitor, or return None.

        A monitor that is about to end still accepts connections and drops them, so it has to reply. The reader ignores
        that reply.
        """
        connection = self._connect()
        if connection is None:
            return None
        connection.settimeout(MEET_S)
        try:
            connection.send(b"0\0list")
            there = bool(connection.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            there = True  # the first request will report that it does not reply
        except OSError:
            there = False
        if not there:
            connection.close()
            return None
        connection.settimeout(None)
        return connection

    def _connect(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            return None
        return connection

    def _start(self) -> socket.socket:
        self.adopted = False
        self._path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self._path))
            listener.listen(8)
            # Before the monitor starts: it ends with its last client, so also if this process is killed from here on.
            connection = self._connect()
            if connection is None:
                raise MonitorLost(f"cannot connect to {self._path}, the new socket of the monitor")
            command = [sys.executable, *UTF8, "-I", "-S", "-c", _BOOT, str(Path(actors.__file__).parents[1])]
            with self._path.with_suffix(".log").open("ab") as errors:
                self._process = subprocess.Popen(
                    [*command, str(listener.fileno()), *command],
                    pass_fds=(listener.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    cwd="/",
                    env={"PATH": os.environ.get("PATH", os.defpath)},
                    start_new_session=True,  # keep Ctrl-C from it
                )
        return connection

    def containers(self) -> tuple[int, set[str]]:
        """The monitor's pid, and the IDs of its containers. Raises MonitorError."""
        pid, *ids = self.ask("list")
        return int(pid), set(ids)

    def ask(self, verb: str, *arguments: str, timeout_s: float = ANSWER_S) -> tuple[str, ...]:
        """Send a request; return the reply's fields. Raises MonitorError, MonitorLost, TimeoutError."""
        fields, fds = self._exchange(verb, *arguments, timeout_s=timeout_s)
        for fd in fds:
            os.close(fd)
        return fields

    def attach(self, id_: str, pipes: Mapping[str, int]) -> tuple[bool, int]:
        """Send a container's output to `pipes`, by name of the stream. Raises as `ask` does.

        Returns whether it takes input, and the master of its terminal or -1; the caller closes it.
        """
        fields, fds = self._exchange("attach", id_, ",".join(pipes), passed=tuple(pipes.values()))
        return fields == ("open",), fds[0] if fds else -1

    def _exchange(self, verb: str, *arguments: str, passed: Sequence[int] = (), timeout_s: float = ANSWER_S) -> Answer:
        number = str(next(self._numbers))
        future: Future[Answer] = Future()
        with self._lock:
            if self._lost:
                raise MonitorLost("the monitor has ended")
            self._pending[number] = future
        try:
            packet = "\0".join((number, verb, *arguments)).encode("utf-8", "surrogateescape")
            socket.send_fds(self._socket, [packet], list(passed))
        except OSError as error:
            self._pending.pop(number, None)
            raise MonitorLost(f"cannot reach the monitor: {error}") from error
        answered = threading.Event()
        future.add_done_callback(lambda _: answered.set())
        if not answered.wait(timeout_s):
            if self._pending.pop(number, None) is not None:
                raise TimeoutError(f"the monitor has not replied to {verb} within {timeout_s:g} s")
            answered.wait()  # the reader has taken it, and is about to hand over the reply and its descriptors
        return future.result(0)

    def close(self) -> None:
        """Disconnect; a monitor without containers ends."""
        with self._lock:
            self._lost = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)

    def _read(self) -> None:
        while received := self._receive():
            packet, fds = received
            kind, *fields = packet.decode("utf-8", "surrogateescape").split("\0")
            if kind == "exited":
                id_, code, at_ns = fields
                self._on_exited(id_, int(code), int(at_ns))
                continue
            number, outcome, *rest = fields
            future = self._pending.pop(number, None)
            if future is not None and outcome == "ok":
                future.set((tuple(rest), fds))
                continue
            for fd in fds:
                os.close(fd)
            if future is not None:
                future.set_error(MonitorError(rest[0] if rest else "the monitor gave no reason"))
        self._end()

    def _receive(self) -> tuple[bytes, list[int]] | None:
        try:
            packet, fds, _, _ = socket.recv_fds(self._socket, PACKET_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return None
        return (packet, fds) if packet else None

    def _end(self) -> None:
        with self._lock:
            wanted, self._lost = self._lost, True
            pending, self._pending = self._pending, {}
        for future in list(pending.values()):  # a request that times out now may still remove its own
            future.set_error(MonitorLost("the monitor ended before it replied"))
        self._socket.close()
        if not wanted:
            if self._process is not None:
                self._process.wait()  # it closed the connection: it has ended or is about to
            log.warning("the containers' monitor has ended; starting another, which adopts them")
            self._on_lost()
