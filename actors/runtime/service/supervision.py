"""The actor's side of the monitor: finds it or starts it, asks it, hears of exits, replaces it when it is gone.

What the monitor is, and its packets: actors/runtime/monitor.
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

PACKET_BYTES = 262144
ANSWER_S = 120.0
"""A container's start: the OCI runtime under load."""
MEET_S = 10.0
"""Its loop is quick, but the machine may be busy."""
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from actors.runtime.monitor.loop import main; main(sys.argv[2:])"
Answer = tuple[tuple[str, ...], list[int]]
"""Fields, and descriptors that came with them."""
log = logging.getLogger(__name__)


class MonitorError(Exception):
    """The monitor could not do it; the message is its own or the OCI runtime's."""


class MonitorLost(MonitorError):
    """It ended before it answered. Whether it did what it was asked is told by the container's files."""


class MonitorClient:
    """One connection to the monitor. Safe from any thread."""

    def __init__(self, path: Path, on_exited: Callable[[str, int, int], None], on_lost: Callable[[], None]) -> None:
        """`path` is its socket. The callbacks run in the reader's thread; `on_lost` once, then a new client is due."""
        self._path = path
        self._on_exited = on_exited
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._pending: dict[str, Future[Answer]] = {}
        self._lock = threading.Lock()
        self._lost = False
        self._process: subprocess.Popen[bytes] | None = None
        self.adopted = True
        """Whether it was there already."""
        self._socket = self._meet() or self._start()
        threading.Thread(target=self._read, name="monitor", daemon=True).start()

    def _meet(self) -> socket.socket | None:
        """The connection to a monitor that is there. One that just ends, as nobody needs it, still takes connections,
        and lets them fall: it has to say something. The reader makes nothing of that answer."""
        connection = self._connect()
        if connection is None:
            return None
        connection.settimeout(MEET_S)
        try:
            connection.send(b"0\0list")
            there = bool(connection.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            there = True  # whoever asks it for something will say that it does not answer
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
            command = [sys.executable, "-I", "-S", "-c", _BOOT, str(Path(actors.__file__).parents[1])]
            with self._path.with_suffix(".log").open("ab") as errors:
                self._process = subprocess.Popen(
                    [*command, str(listener.fileno()), *command],
                    pass_fds=(listener.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    cwd="/",
                    env={"PATH": os.environ.get("PATH", os.defpath)},
                    start_new_session=True,  # a Ctrl-C is not for it
                )
            connection = self._connect()
        if connection is None:
            raise MonitorLost(f"cannot start the monitor; see {self._path.with_suffix('.log')}")
        return connection

    def containers(self) -> tuple[int, set[str]]:
        """Its pid, and whom it watches. Raises MonitorError."""
        pid, *ids = self.ask("list")
        return int(pid), set(ids)

    def ask(self, verb: str, *arguments: str, timeout_s: float = ANSWER_S) -> tuple[str, ...]:
        """The answer's fields. Raises MonitorError, MonitorLost, TimeoutError."""
        fields, fds = self._exchange(verb, *arguments, timeout_s=timeout_s)
        for fd in fds:
            os.close(fd)
        return fields

    def attach(self, id_: str, pipes: Mapping[str, int]) -> tuple[bool, int]:
        """Have a container's output written to `pipes`, by name of the stream. Raises as `ask` does.

        Comes back with whether it takes input, and its terminal's master, -1 without; it is the caller's to close.
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
            self._pending.pop(number, None)
            raise TimeoutError(f"the monitor has not answered {verb} for {timeout_s:g} s")
        return future.result(0)

    def close(self) -> None:
        """Let go of it; without containers it ends."""
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
            if future is None:
                for fd in fds:
                    os.close(fd)
            elif outcome == "ok":
                future.set((tuple(rest), fds))
            else:
                future.set_error(MonitorError(rest[0] if rest else "it says no more"))
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
        for future in pending.values():
            future.set_error(MonitorLost("the monitor ended before it answered"))
        self._socket.close()
        if not wanted:
            if self._process is not None:
                self._process.wait()  # its connection is closed: it is gone, or about to be
            log.warning("the containers' monitor is gone; starting another, which takes them over")
            self._on_lost()
