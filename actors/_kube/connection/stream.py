"""Streaming answers that the process's I/O loop reads, so that a watch needs a connection but no thread.

A watch takes 34 kB, measured with 200. Opening one blocks a client's thread until the head of the answer has come.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from actors._base.messaging.bus import Bus
from actors._host.proxies import Proxy
from actors._kube.connection.deadlines import BoundedAnswer, StreamedAnswer
from actors._kube.errors import ApiError

READ_BYTES = 64 * 1024
LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""Limit of an event. The largest object has some 3 MiB."""
LONGEST_ERROR_BYTES = 1024 * 1024
"""Limit of the answer in place of a stream."""
_LONGEST_SIZE = 1024
"""Limit of the line with a chunk's size."""

Arrived = Callable[[list[bytes], bool], None]


class Chunks:
    """An incremental decoder of the transfer coding `chunked` (RFC 9112, 7.1). Pure."""

    def __init__(self) -> None:
        self.ended = False
        self._rest = bytearray()
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """The decoded content so far. Raises ValueError for invalid chunks."""
        rest, content = self._rest, bytearray()
        rest += data
        while not self.ended:
            if self._left:
                part = rest[: self._left]
                del rest[: len(part)]
                content += part
                self._left -= len(part)
                if self._left:
                    break
            end = rest.find(b"\n")
            if end < 0:
                if len(rest) > _LONGEST_SIZE:
                    raise ValueError("a chunk without a size")
                break
            size = bytes(rest[:end]).strip()
            del rest[: end + 1]
            if size:  # an empty line ends the chunk before
                self._left = int(size.partition(b";")[0], 16)
                self.ended = self._left == 0
        return bytes(content)


class Stream:
    """One answer after its head. `Session.stream` makes it; one thread at a time uses it."""

    def __init__(self, sock: socket.socket, beginning: bytes, *, chunked: bool) -> None:
        """`beginning` has the bytes that were read with the head."""
        sock.setblocking(False)
        self._sock = sock
        self._beginning = beginning
        self._chunks = Chunks() if chunked else None
        self._line = bytearray()

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._sock.fileno()

    def read(self) -> tuple[list[bytes], bool]:
        """The complete lines that have arrived, and whether the answer ended. An incomplete last line is dropped."""
        lines: list[bytes] = []
        data, self._beginning = self._beginning, b""
        try:
            while True:
                if data and self._take(data, lines):
                    return lines, True
                data = self._sock.recv(READ_BYTES)
                if not data:
                    return lines, True
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return lines, False
        except (OSError, ValueError):
            return lines, True

    def _take(self, data: bytes, lines: list[bytes]) -> bool:
        """True when the answer has ended."""
        self._line += data if self._chunks is None else self._chunks.feed(data)
        *whole, last = self._line.split(b"\n")
        lines += [bytes(line) for line in whole if line.strip()]
        self._line = last
        if len(last) > LONGEST_LINE_BYTES:
            raise ValueError("a line without end")
        return self._chunks is not None and self._chunks.ended

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


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


class Endpoint:
    """The server of streams, how to verify it, and the proxy before it."""

    def __init__(self, server: str, context: ssl.SSLContext | None, name: str, proxy: Proxy | None) -> None:
        """`context` and the TLS `name` are for an https server."""
        self._server, self._proxy = urlsplit(server), urlsplit(proxy.url if proxy else "")
        self._proxy_headers = proxy.headers if proxy else {}
        self._context, self._name = context, name

    def connect(self, timeout_s: float, options: tuple[tuple[int, int, int], ...]) -> http.client.HTTPConnection:
        """A connection, with TLS for https. Raises OSError, http.client.HTTPException."""
        host, port = self._server.hostname or "", self._server.port or (443 if self._context else 80)
        if self._proxy.scheme == "https":
            raise OSError("watches go through http:// proxies only")
        connection = http.client.HTTPConnection(
            self._proxy.hostname or host, self._proxy.port or port, timeout=timeout_s
        )
        if self._proxy.hostname:
            connection.set_tunnel(host, port, headers=self._proxy_headers)
            connection.response_class = BoundedAnswer
        connection.connect()
        for level, option, value in options:
            connection.sock.setsockopt(level, option, value)
        if self._context is not None:
            connection.sock = self._context.wrap_socket(connection.sock, server_hostname=self._name or host)
        return connection


def open_stream(connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]) -> Stream:
    """GET on a new connection, which the stream owns. Its timeout binds the head, or the whole of an error.

    Raises ApiError, OSError, http.client.HTTPException.
    """
    try:
        connection.response_class = StreamedAnswer
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise ApiError.of(answer.status, answer.read(LONGEST_ERROR_BYTES), answer.headers.get("Retry-After"))
        sock = connection.sock
        sock.setblocking(False)
        beginning = b""
        with suppress(OSError):  # no bytes came with the head
            beginning = answer.fp.peek()
        chunked = bool(answer.chunked)
    except BaseException:
        connection.close()
        raise
    connection.sock = None  # the stream owns it
    answer.close()
    return Stream(sock, beginning, chunked=chunked)
