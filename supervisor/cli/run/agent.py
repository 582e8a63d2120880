"""Runs the agent as a child process, for `supervisor run` and `start --run-once`; reads its log, and counts signals."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType

from proto.common.interpreter import UTF8

START = (sys.executable, *UTF8, "-P", "-m", "supervisor", "start")
"""The agent's command line; -P: nothing is imported from the present directory."""
END_S = 20.0
"""Time for the agent to end after SIGTERM. Each actor has 5 s; most end at the same time."""
TAIL_LINES = 8
STDERR = Path()
"""Value of `log` for our own stderr."""
_PR_SET_PDEATHSIG = 1  # prctl(2)
_WARNING = re.compile(r"[WE]\d{4} \S+ +\d+ \S+\] (?P<text>.*)")
"""A warning or an error in the log, in the format of proto.common.logs."""


class Agent:
    """One `supervisor start` as a child process, with its log in a file or on our stderr."""

    def __init__(self, command: Sequence[str], log: Path = STDERR) -> None:
        self.command = list(command)
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = time.monotonic()
        self._read_to = 0
        self.pidfd = -1

    @property
    def pid(self) -> int:
        """The process's pid; 0 before `start`."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start the process. Raises OSError."""
        # Loaded before the fork, because imports between fork and exec are not safe.
        prctl, ours = ctypes.CDLL(None).prctl, os.getpid()

        def die_with_us() -> None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != ours:  # our process has ended before the prctl
                os._exit(1)

        # Not open("/dev/stderr"), which fails in a service, whose stderr is a socket.
        with open(2, "ab", closefd=False) if self.log == STDERR else self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only us, and we end the agent in order
                preexec_fn=die_with_us,  # noqa: PLW1509 - one thread
            )
        self._started_at = time.monotonic()
        self.pidfd = os.pidfd_open(self._process.pid)

    def alive(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    def age_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_at

    def exit_text(self) -> str:
        """`exit code N`, or the name of the signal."""
        code = self._process.wait() if self._process is not None else 0
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def end(self) -> None:
        """Send SIGTERM and wait; after END_S kill the process."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def new_warnings(self) -> list[str]:
        """Warnings and errors in the log since the last call, without their header."""
        with self.log.open("rb") as file:
            file.seek(self._read_to)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read_to += len(whole) + len(newline)
        found = map(_WARNING.fullmatch, whole.decode(errors="replace").splitlines())
        return [" ".join(match["text"].split()) for match in found if match]

    def last_lines(self) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])


class Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP instead of their usual effect. A signal ends a wait."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.count = 0
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Interrupts:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._on_signal) for number in self.SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    def wait(self, timeout_s: float, pidfd: int) -> None:
        """Wait for a signal, the end of the process of `pidfd`, or the timeout."""
        ready, _, _ = select.select([self._read, pidfd], [], [], timeout_s)
        if self._read in ready:
            os.read(self._read, 64)
