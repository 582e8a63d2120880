"""A command in a fresh machine with a terminal as its input and output, and a person's Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from tests.fresh.machine import Machine

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|\x1b[()][A-Z0-9]|\x1b[=>78]")
_SHELL = '"$@"; exit $?'
"""A person's shell has job control (-m): the command is in the terminal's foreground, and Ctrl-C is for it alone."""


class Terminal:
    """A command from `with` on; what is left of it is killed at the end."""

    def __init__(
        self,
        machine: Machine,
        arguments: Sequence[str],
        user: str = "root",
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
        columns: int = 120,
    ) -> None:
        shell = ["sh", "-m", "-c", _SHELL, "sh", *arguments]
        variables = {"TERM": "xterm", **(environment or {})}
        self._command = machine.command(shell, user, cwd, variables, terminal=True)
        self._columns = columns
        self._said = bytearray()
        self._began = 0.0

    def __enter__(self) -> Terminal:
        self._end, slave = os.openpty()
        termios.tcsetwinsize(slave, (40, self._columns))
        self._began = time.monotonic()
        try:
            self._process = subprocess.Popen(
                self._command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
            )
        finally:
            os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(timeout=5)  # processes that keep the terminal open end with the machine
        os.close(self._end)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the last process has closed the terminal
            while data := os.read(self._end, 65536):
                self._said += data

    @property
    def raw(self) -> str:
        """Its output, with the codes that move the cursor."""
        return bytes(self._said).decode(errors="replace")

    @property
    def said(self) -> str:
        """Its output without the codes. A line that was written anew is there several times."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n").replace("\r", "\n")

    @property
    def last(self) -> str:
        """The first and the last lines of it, for the message of a failure."""
        lines = self.said.splitlines()
        return "\n".join(lines if len(lines) < 60 else [*lines[:30], "...", *lines[-30:]])

    def wait_for(self, text: str | re.Pattern[str], timeout_s: float) -> float:
        """Seconds from the start until the text is there. Fails with all output past the deadline or at the end."""
        pattern = re.compile(re.escape(text)) if isinstance(text, str) else text
        deadline = time.monotonic() + timeout_s
        while True:
            ended = self._process.poll() is not None
            if pattern.search(self.said):
                return time.monotonic() - self._began
            problem = "the command has ended" if ended else f"not within {timeout_s:g} s"
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"{problem}, and there is no {pattern.pattern!r} in:\n{self.last}")
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Type it at the keyboard."""
        os.write(self._end, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C: the kernel sends SIGINT to the terminal's foreground process group."""
        self.type("\x03")

    def wait(self, timeout_s: float) -> int:
        """Wait for the end; the exit code, as a shell has it. Fails with all output past the deadline."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"has not ended within {timeout_s:g} s:\n{self.last}") from None
        self._reader.join(timeout=5)
        return code if code >= 0 else 128 - code
