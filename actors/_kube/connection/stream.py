"""Streaming answers that the process's I/O loop reads, so that a watch needs a connection but no thread.

A watch takes 34 kB, measured with 200. Opening one blocks a client's thread until the head of the answer has come.
"""

from __future__ import annotations

import errno
import select
import threading
from collections.abc import Callable

from actors._base.messaging.bus import Bus
from actors._kube.connection.http1 import Connection, Headers, header
from actors._kube.errors import ApiError

LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""Limit of an event. The largest object has some 3 MiB."""
LONGEST_ERROR_BYTES = 1024 * 1024
"""Limit of the answer in place of a stream."""

Arrived = Callable[[list[bytes], bool], None]


class Stream:
    """One answer after its head. `Session.stream` makes it; one thread at a time uses it."""

    def __init__(self, connection: Connection) -> None:
        connection.sock.setblocking(False)
        self._connection = connection
        self._line = bytearray()

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._connection.sock.fileno()

    def read(self) -> tuple[list[bytes], bool]:
        """The complete lines that have arrived, and whether the answer ended. An incomplete last line is dropped."""
        lines: list[bytes] = []
        while data := self._connection.read_available():
            self._line += data
            if b"\n" in data:  # only then, as splitting copies the line
                *whole, self._line = self._line.split(b"\n")
                lines += [bytes(line) for line in whole if line.strip()]
            if len(self._line) > LONGEST_LINE_BYTES:
                return lines, True
        return lines, data is not None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Streams:
    """The open streams of a process, on one epoll descriptor that its I/O loop watches."""

    def __init__(self, bus: Bus) -> None:
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Stream, Arrived]] = {}
        bus.watch_fd(self._epoll.fileno(), self._readable)

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: Stream, arrived: Arrived) -> None:
        """Start reading. `arrived` gets lines and whether the stream ended, in the I/O thread; it must not block."""
        with self._lock:
            self._open[stream.fileno()] = (stream, arrived)
            # Writable at once: bytes that were read with the head are handled although no more arrive.
            self._epoll.register(stream.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def remove(self, stream: Stream) -> None:
        """Stop reading and close the stream. `arrived` is not called afterwards."""
        with self._lock:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        if self._open.pop(stream.fileno(), None) is not None:
            self._epoll.unregister(stream.fileno())
        stream.close()

    def _readable(self) -> None:
        """Read the ready streams, in the I/O thread."""
        for fd, events in self._epoll.poll(0):
            with self._lock:
                if fd not in self._open:
                    continue
                stream, arrived = self._open[fd]
                if events & select.EPOLLOUT:
                    self._epoll.modify(fd, select.EPOLLIN)
                lines, ended = stream.read()
                if ended:
                    self._forget(stream)
                if lines or ended:
                    arrived(lines, ended)


def open_stream(connection: Connection, target: str, headers: Headers, deadline: float) -> Stream:
    """GET on a new connection, which the stream owns. The deadline is for the head, or the whole of an error.

    Raises ApiError, OSError, h11.ProtocolError.
    """
    try:
        connection.request("GET", target, headers, None, deadline)
        head = connection.head(deadline)
        if head.status_code >= 300:
            raise ApiError.of(head.status_code, _text_of(connection, deadline), header(head, "Retry-After"))
    except BaseException:
        connection.close()
        raise
    return Stream(connection)


def _text_of(connection: Connection, deadline: float) -> bytes:
    """The text of an error; empty if it is too long: its status says enough."""
    try:
        return connection.content(deadline, LONGEST_ERROR_BYTES)
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
        return b""
