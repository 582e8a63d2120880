"""An HTTP/1.1 connection to the API server: h11 reads and writes the protocol, this module the socket.

Each call has a deadline for all that follows the connection. The timeout of a socket counts for each read: a server
that sends a byte in time would hold a thread without limit.
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
import time
from collections.abc import Iterable
from contextlib import suppress

import h11

READ_BYTES = 64 * 1024
LONGEST_HEAD_BYTES = 64 * 1024
"""Limit of an answer's status line and headers."""
Headers = Iterable[tuple[str, str]]


def header(head: h11.Response, name: str) -> str | None:
    """The first value of a header of an answer; None without one."""
    wanted = name.lower().encode()
    return next((value.decode("latin-1") for key, value in head.headers if key == wanted), None)


class Connection:
    """One connection, for one request at a time. It raises OSError, h11.ProtocolError and ValueError."""

    def __init__(self, sock: socket.socket, host: str) -> None:
        """`host`: the header Host of its requests."""
        self.sock, self._host = sock, host
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD_BYTES)

    def request(self, method: str, target: str, headers: Headers, body: bytes | None, deadline: float) -> None:
        """Send a request with one write, so that its head and body share a packet."""
        fields = [("Host", self._host), *headers]
        if body is not None or method in ("POST", "PUT", "PATCH"):  # without it, some proxies answer 411
            fields.append(("Content-Length", str(len(body or b""))))
        encoded = [(name.encode("ascii"), text.strip(" \t").encode("latin-1")) for name, text in fields]
        content = self._encoded(h11.Request(method=method, target=target, headers=encoded))
        content += self._encoded(h11.Data(data=body)) if body else b""
        content += self._encoded(h11.EndOfMessage())
        self._set_timeout(deadline)
        # A server that answers before it has the body, as with 401 or 413, may end the connection: `head` tells.
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            self.sock.sendall(content)

    def head(self, deadline: float) -> h11.Response:
        """The head of the answer, after any informational ones."""
        event = self._event(deadline)
        while isinstance(event, h11.InformationalResponse):
            event = self._event(deadline)
        if not isinstance(event, h11.Response):
            raise ConnectionError(f"the server sent no answer: {event}")
        return event

    def content(self, deadline: float, limit: int) -> bytes:
        """The body of the answer. Raises OSError (EMSGSIZE) over `limit` bytes."""
        parts, size = [], 0
        while isinstance(event := self._event(deadline), h11.Data):
            parts.append(event.data)
            size += len(event.data)
            if size > limit:
                raise OSError(errno.EMSGSIZE, f"the answer has more than {limit} bytes")
        return b"".join(parts)

    def read_available(self) -> bytes | None:
        """A part of the body that is here; None when nothing is here, empty at the end of the body or connection.

        For a socket that does not block.
        """
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(self.sock.recv(READ_BYTES))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except (OSError, h11.ProtocolError):
            return b""
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    def next_cycle(self) -> bool:
        """Prepare for another request; False when the connection is of no further use."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        if self._http.trailing_data[0]:
            return False
        self._http.start_next_cycle()
        return True

    def is_idle(self) -> bool:
        """True while the server has sent nothing, not even the end of the connection."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()

    def _encoded(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> bytes:
        return self._http.send(event) or b""

    def _event(self, deadline: float) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._set_timeout(deadline)
            content = self.sock.recv(READ_BYTES)
            if not content and self._http.their_state is h11.SEND_RESPONSE:
                raise ConnectionError("the server closed the connection without an answer")
            self._http.receive_data(content)
        return event

    def _set_timeout(self, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")  # as the socket's own
        self.sock.settimeout(left_s)
