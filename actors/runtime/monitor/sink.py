"""Who is attached to a container's output: a pipe for each stream that somebody wants, besides the log."""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
"""Known to type checkers by its name; `typing` would be a megabyte."""
if TYPE_CHECKING:
    from typing import Any

    from actors.runtime.monitor.container import Container
    from actors.runtime.monitor.output import Output


class Sink:
    """One pipe. What it has no room for waits here, and the output with it: its client is never short of a line."""

    __slots__ = ("container", "ending", "fd", "output", "rest")

    def __init__(self, fd: int, container: Container, output: Output) -> None:
        self.fd, self.container, self.output = fd, container, output
        self.rest = b""
        self.ending = False

    def put(self, chunk: bytes) -> None:
        self.rest += chunk
        self.flush()

    def flush(self) -> None:
        """As far as there is room. It ends with its reader."""
        try:
            while self.rest:
                self.rest = self.rest[os.write(self.fd, self.rest) :]
        except BlockingIOError:
            return
        except OSError:
            self.rest, self.ending = b"", True


class Sinks:
    """All of them, on the monitor's loop."""

    def __init__(self, monitor: Any) -> None:
        self.monitor = monitor

    def add(self, fd: int, container: Container, output: Output) -> None:
        os.set_blocking(fd, False)
        sink = Sink(fd, container, output)
        output.sinks.append(sink)
        self.monitor.watch(fd, lambda _: self.on_ready(sink), 0)  # which tells of the reader's end alone

    def hold(self, output: Output) -> None:
        """After a read: no further one while somebody has not taken the last."""
        for sink in output.sinks:
            if sink.rest:
                self.monitor.unwatch(output.fd)
                self.monitor.poll.modify(sink.fd, select.POLLOUT)

    def on_ready(self, sink: Sink) -> None:
        """There is room, or nobody reads any more."""
        sink.ending = sink.ending or not sink.rest
        sink.flush()
        if sink.rest:
            return
        if sink.ending:
            self.close(sink)
        else:
            self.monitor.poll.modify(sink.fd, 0)
        if not any(one.rest for one in sink.output.sinks):
            self.monitor.resume(sink.container, sink.output)

    def end(self, output: Output) -> None:
        """Nothing more comes; what somebody has not taken yet waits for him."""
        for sink in output.sinks[:]:
            sink.ending = True
            if not sink.rest:
                self.close(sink)

    def close(self, sink: Sink) -> None:
        sink.output.sinks.remove(sink)
        self.monitor.unwatch(sink.fd)
        os.close(sink.fd)
