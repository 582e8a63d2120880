"""The agent as a child of `supervisor run` and `start --run-once`: the process, its log; signals that wake us.

Not here: what the agent does, and what a person is told of it.
"""

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

START = (sys.executable, "-P", "-m", "supervisor", "start")
"""The agent's command line; -P: nothing is imported from the present directory."""
END_S = 20.0
"""For the agent to end after SIGTERM; each actor has 5 s, and they end side by side where they can."""
TAIL_LINES = 8
STDERR = Path()
"""In place of a log file."""
_PR_SET_PDEATHSIG = 1  # prctl(2)
_COMPLAINT = re.compile(r"[WE]\d{4} \S+ (?P<text>.*)")
"""A log line of a warning or an error, as proto.common.logs writes it."""


class Agent:
    """One `supervisor start`, with its log in a file, or without `log` on our own stderr."""

    def __init__(self, command: Sequence[str], log: Path = STDERR) -> None:
        self.command = list(command)
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = time.monotonic()
        self._read_to = 0
        self.pidfd = -1

    @property
    def pid(self) -> int:
        """Its pid; 0 before `start`."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start it. Raises OSError."""
        # Loaded before the fork: between fork and exec only what is there may be used.
        prctl, ours = ctypes.CDLL(None).prctl, os.getpid()

        def die_with_us() -> None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != ours:  # we died before that
                os._exit(1)

        # Not by opening /dev/stderr: a service's is a socket.
        with open(2, "ab", closefd=False) if self.log == STDERR else self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for us, who then end it in order
                preexec_fn=die_with_us,  # noqa: PLW1509 - one thread
            )
        self._started_at = time.monotonic()
        self.pidfd = os.pidfd_open(self._process.pid)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def age_s(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._started_at

    def how_it_ended(self) -> str:
        """Exit code or signal."""
        code = self._process.wait() if self._process is not None else 0
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def end(self) -> None:
        """Ask it to end and wait; kill it when it does not."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def complaints(self) -> list[str]:
        """Warnings and errors that it logged since the last call, without their time."""
        with self.log.open("rb") as file:
            file.seek(self._read_to)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read_to += len(whole) + len(newline)
        found = map(_COMPLAINT.fullmatch, whole.decode(errors="replace").splitlines())
        return [" ".join(match["text"].split()) for match in found if match]

    def last_lines(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])


class Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP in place of their effect, and lets a wait end at one."""

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
        """Wait until a signal, the end of the process behind `pidfd`, or the timeout."""
        ready, _, _ = select.select([self._read, pidfd], [], [], timeout_s)
        if self._read in ready:
            os.read(self._read, 64)
