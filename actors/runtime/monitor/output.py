"""Copies a container's output to its log, in the CRI log format.

https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
"""

from __future__ import annotations

import errno
import os
import time

from actors.runtime.monitor.files import open_log

TYPE_CHECKING = False  # see loop.py
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LINE_BYTES = 16384
"""Longer lines are logged in parts, with CRI's tag `P`."""
READ_BYTES = 65536


class Log:
    """A container's log file; writes nothing with an empty path."""

    __slots__ = ("fd",)

    def __init__(self) -> None:
        self.fd = -1

    def open(self, path: str) -> None:
        """Write to the file `path` from now on. Raises OSError; then the log stays as it was."""
        fd = open_log(path) if path else -1
        self.close()
        self.fd = fd

    def write(self, content: bytes) -> None:
        """Append to the log. A full disk loses lines but must not stop the container."""
        if self.fd < 0:
            return
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self.fd, view) :]
        except OSError:
            pass

    def close(self) -> None:
        """Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Stamp:
    """The current time in CRI's log format; caches the part that changes once a second."""

    __slots__ = ("prefix", "second")

    def __init__(self) -> None:
        self.second = -1
        self.prefix = b""

    def now(self) -> bytes:
        """RFC 3339 with nanoseconds, UTC."""
        second, ns = divmod(time.time_ns(), 1_000_000_000)
        if second != self.second:
            self.second = second
            self.prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%b.%09dZ" % (self.prefix, ns)


STAMP = Stamp()


class Output:
    """One output stream: from its non-blocking descriptor to the log and to attached clients."""

    __slots__ = ("fd", "log", "rest", "sinks", "stream")

    def __init__(self, fd: int, stream: str, log: Log) -> None:
        self.fd, self.stream, self.log = fd, stream.encode(), log
        self.rest = b""
        self.sinks: list[Any] = []

    def read(self) -> bool | None:
        """Read once. True: more may be ready; False: nothing is ready; None: the stream has ended."""
        try:
            chunk = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:  # EIO: the terminal's other end is closed
            chunk = b"" if error.errno == errno.EIO else f"cannot read the output: {error}\n".encode()
        if chunk:
            self.log.write(b"".join(self.lines(chunk)))
            for sink in self.sinks:
                sink.put(chunk)
            return True
        if self.rest:
            self.log.write(self.line(b"P", self.rest))
            self.rest = b""
        return None

    def lines(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the log lines that `chunk` completes."""
        *whole, rest = (self.rest + chunk).split(b"\n")
        for line in whole:
            while len(line) > LINE_BYTES:
                yield self.line(b"P", line[:LINE_BYTES])
                line = line[LINE_BYTES:]  # noqa: PLW2901 - the remainder
            yield self.line(b"F", line)
        while len(rest) >= LINE_BYTES:
            yield self.line(b"P", rest[:LINE_BYTES])
            rest = rest[LINE_BYTES:]
        self.rest = rest

    def line(self, tag: bytes, content: bytes) -> bytes:
        """Format one log line."""
        return b"%b %b %b %b\n" % (STAMP.now(), self.stream, tag, content)
