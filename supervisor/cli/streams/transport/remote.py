"""exec and attach: connects this process's standard streams or terminal to a container's.

It is Kubernetes' remote command protocol, version 4: a stream each for stdin, stdout, stderr, the terminal's size, and
the result.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import struct
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from actors._net.streaming.spdy import Data, Reset
from proto.common import untrusted
from supervisor.cli.streams.transport.connection import BLOCK, MAX_UNSENT, Connection, StreamingError
from supervisor.cli.views.output import writing

PROTOCOL = "v4.channel.k8s.io"
STDIN, STDOUT, STDERR = 0, 1, 2


def exit_code_of(outcome: bytes) -> int:
    """The exit code in the content of the error stream. Raises StreamingError for other results."""
    if not outcome:
        raise StreamingError("lost the connection to the runtime before the end")
    try:
        status = untrusted.decode_json(outcome, dict[str, Any])
    except msgspec.DecodeError:
        raise StreamingError(outcome.decode(errors="replace")) from None
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    for cause in causes:
        if cause.get("reason") == "ExitCode":
            return int(cause.get("message", "1"))
    raise StreamingError(status.get("message") or "the runtime reported a failure without a reason")


class Remote:
    """A running exec or attach."""

    def __init__(self, connection: Connection, *, stdin: bool, stderr: bool, terminal: bool) -> None:
        self._connection = connection
        self._selector = selectors.DefaultSelector()
        self._outcome = b""
        self._error = connection.open({"streamtype": "error"})
        self._input = connection.open({"streamtype": "stdin"}) if stdin else 0
        self._sinks = {connection.open({"streamtype": "stdout"}): STDOUT}
        if stderr:
            self._sinks[connection.open({"streamtype": "stderr"})] = STDERR
        self._size = connection.open({"streamtype": "resize"}) if terminal else 0
        self._open = {self._error, *self._sinks}

    def run(self) -> int:
        """Transfer until the end, and return the exit code. Raises StreamingError."""
        self._selector.register(self._connection, selectors.EVENT_READ)
        with self._selector, _changes_of_size(bool(self._size)) as changes:
            if self._size:
                self._selector.register(changes, selectors.EVENT_READ)
                self._tell_size()
            reading_input = False
            while self._open:
                wanted = bool(self._input) and self._connection.waiting < MAX_UNSENT
                if wanted != reading_input:
                    reading_input = self._watch_input(wanted)
                writing = selectors.EVENT_WRITE if self._connection.waiting else 0
                self._selector.modify(self._connection, selectors.EVENT_READ | writing)
                if not self._transfer(changes):
                    break
        return exit_code_of(self._outcome)

    def _watch_input(self, wanted: bool) -> bool:
        if not wanted:
            self._forget_input()
            return False
        try:
            self._selector.register(STDIN, selectors.EVENT_READ)
        except PermissionError:  # a regular file, which is always readable
            self._take_input()
            return False
        return True

    def _transfer(self, changes: int) -> bool:
        """Wait for bytes and transfer them; False at the end of the connection."""
        more = self._connection.waiting < MAX_UNSENT
        is_file = bool(self._input) and more and STDIN not in self._selector.get_map()
        for key, _ in self._selector.select(0 if is_file else None):
            if key.fileobj is self._connection:
                self._connection.flush()
                if not self._take_output():
                    return False
            elif key.fileobj == STDIN:
                self._take_input()
            else:
                os.read(changes, 4096)
                self._tell_size()
        return True

    def _take_input(self) -> None:
        content = os.read(STDIN, BLOCK)
        self._connection.write(self._input, content, end=not content)
        if not content:
            self._stop_input()

    def _take_output(self) -> bool:
        events = self._connection.read()
        for event in events or ():
            if isinstance(event, Data) and event.stream == self._error:
                self._outcome += event.content
            elif isinstance(event, Data) and event.stream in self._sinks:
                _write_all(self._sinks[event.stream], event.content)
            if isinstance(event, Reset) or event.end:
                self._open.discard(event.stream)
                if isinstance(event, Reset) and event.stream == self._input:
                    self._stop_input()
        return events is not None

    def _stop_input(self) -> None:
        self._forget_input()
        self._input = 0

    def _forget_input(self) -> None:
        if STDIN in self._selector.get_map():
            self._selector.unregister(STDIN)

    def _tell_size(self) -> None:
        rows, columns = terminal_size()
        self._connection.write(self._size, json.dumps({"Width": columns, "Height": rows}).encode())


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    with writing():
        while left:
            left = left[os.write(descriptor, left) :]


def terminal_size() -> tuple[int, int]:
    """Rows and columns of the terminal."""
    rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(STDIN, termios.TIOCGWINSZ, b"\0" * 8))
    return rows, columns


@contextmanager
def _changes_of_size(wanted: bool) -> Iterator[int]:
    """A descriptor that gets readable when the terminal's size changes."""
    if not wanted:
        yield -1
        return
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before: Any = signal.signal(signal.SIGWINCH, lambda *_: None)
    wakeup = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGWINCH, before)
        os.close(readable)
        os.close(writable)


@contextmanager
def raw_terminal(wanted: bool) -> Iterator[None]:
    """Send every key to the container, Ctrl-C too."""
    if not wanted:
        yield
        return
    before = termios.tcgetattr(STDIN)
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)  # keys typed before are for the container
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


def is_terminal() -> bool:
    """True when standard input is a terminal."""
    return sys.stdin.isatty()
