"""Answers that fail at a deadline, however slowly the server sends them.

The timeout of a socket counts for each read. A server that sends a byte in time would hold a thread without limit.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, connection


class _BoundedReader(io.RawIOBase):
    """Reads a socket until its timeout has passed since the reader was made. Raises TimeoutError then."""

    def __init__(self, sock: socket.socket) -> None:
        timeout_s = sock.gettimeout()
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._deadline is not None and self._sock.gettimeout() != 0:  # a socket that does not block stays so
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the answer did not end in time")
            self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class BoundedAnswer(http.client.HTTPResponse):
    """An answer whose head and body have to arrive within the timeout that its socket has at the beginning."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        unbounded, self.fp = self.fp, io.BufferedReader(_BoundedReader(sock))
        unbounded.close()


class StreamedAnswer(BoundedAnswer):
    """An answer that leaves its connection open, also with `Connection: close`: a stream owns it.

    An API server that is being stopped sends this header.
    """

    def begin(self) -> None:
        super().begin()
        self.will_close = False


class HTTPConnection(connection.HTTPConnection):
    """Messages of urllib3 have the name of the class."""

    response_class = BoundedAnswer


class HTTPSConnection(connection.HTTPSConnection):
    """The same with TLS."""

    response_class = BoundedAnswer


def bind(pool: HTTPConnectionPool) -> None:
    """Bound the answers of the connections that the pool will make."""
    pool.ConnectionCls = HTTPSConnection if isinstance(pool, HTTPSConnectionPool) else HTTPConnection
