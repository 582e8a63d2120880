"""Sends output to attached clients: a pipe for each client and stream, besides the log."""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False  # see loop.py
if TYPE_CHECKING:
    from typing import Any

    from actors.runtime.monitor.container import Container
    from actors.runtime.monitor.output import Output


class Sink:
    """One client's pipe. When it is full, the output pauses, so that the client loses no line."""

    __slots__ = ("container", "ending", "fd", "output", "rest")

    def __init__(self, fd: int, container: Container, output: Output) -> None:
        self.fd, self.container, self.output = fd, container, output
        self.rest = b""
        self.ending = False

    def put(self, chunk: bytes) -> None:
        self.rest += chunk
        self.flush()

    def flush(self) -> None:
        """Write while there is room; drop the rest when the reader has gone."""
        try:
            while self.rest:
                self.rest = self.rest[os.write(self.fd, self.rest) :]
        except BlockingIOError:
            return
        except OSError:
            self.rest, self.ending = b"", True


class Sinks:
    """All clients' pipes, on the monitor's loop."""

    def __init__(self, monitor: Any) -> None:
        self.monitor = monitor

    def add(self, fd: int, container: Container, output: Output) -> None:
        os.set_blocking(fd, False)
        sink = Sink(fd, container, output)
        output.sinks.append(sink)
        self.monitor.watch(fd, lambda _: self.on_ready(sink), 0)  # mask 0 reports only that the reader has gone

    def hold(self, output: Output) -> None:
        """Pause the output after a read that some client has not taken yet."""
        for sink in output.sinks:
            if sink.rest:
                self.monitor.unwatch(output.fd)
                self.monitor.poll.modify(sink.fd, select.POLLOUT)

    def on_ready(self, sink: Sink) -> None:
        """The pipe has room, or its reader has gone."""
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
        """The output has ended; close each pipe once its client has read the rest."""
        for sink in output.sinks[:]:
            sink.ending = True
            if not sink.rest:
                self.close(sink)

    def close(self, sink: Sink) -> None:
        sink.output.sinks.remove(sink)
        self.monitor.unwatch(sink.fd)
        os.close(sink.fd)
