"""The healthz server: /healthz, /healthz/ACTOR, `?verbose`, `?exclude=ACTOR` and /configz, as in Kubernetes.

It runs in the supervisor's loop without a thread, so that it answers when no actor can. One epoll descriptor stands for
all connections. Limits: few connections, of which the oldest is closed first, short requests, no keep-alive.

There is no authentication, so it serves names and states of actors only. A loopback address also serves the
configuration, which the kubelet serves on an authenticated port. https://kubernetes.io/docs/reference/using-api/health-checks/
"""

from __future__ import annotations

import errno
import logging
import math
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from proto.common import logs
from proto.common.health_report import report
from proto.common.hosts import misdirected
from proto.common.machine.listening import listen

log = logging.getLogger(__name__)

CONNECTIONS = 32
REQUEST_BYTES = 4096
RETRY_S = 5.0
PAUSE_S = 1.0
"""Pause of the port while the process can open no file."""
SAY_S = 60.0
"""Interval of equal log lines."""
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    """An HTTP response."""

    status: int
    body: str
    content_type: str = _TEXT


class Sources(NamedTuple):
    """Functions that give the content of answers. They must neither block nor raise."""

    checks: Callable[[], Mapping[str, str]]
    """Problems by check; empty text for a healthy one."""
    configuration: Callable[[], str] | None = None
    """The KubeletConfiguration in force as JSON; empty when it cannot be read. None refuses /configz."""
    names: tuple[str, ...] = ()
    """Host names that clients may use, besides localhost and the address."""


def answer(target: str, sources: Sources) -> Answer:
    """Answer a request target. Raises ValueError if it is no URL."""
    url = urlsplit(target)
    if url.path == "/configz":
        return _configz(sources.configuration)
    return _healthz(url.path, parse_qs(url.query, keep_blank_values=True), sources.checks())


def _configz(configuration: Callable[[], str] | None) -> Answer:
    """The configuration in an object under its component's name, as the kubelet serves it."""
    if configuration is None:
        return Answer(403, "403 configz is for a loopback --healthz-bind-address; see supervisor config show\n")
    found = configuration()
    if not found:
        return Answer(503, "503 the configuration cannot be read in the run directory; try again\n")
    return Answer(200, f'{{"kubeletconfig":{found}}}', _JSON)


def _healthz(path: str, query: Mapping[str, list[str]], checks: Mapping[str, str]) -> Answer:
    name = path.removeprefix("/healthz/")
    if path not in ("/healthz", "/healthz/"):
        if name == path or name not in checks:
            return Answer(404, "404 page not found\n")
        return Answer(500, f"internal server error: {checks[name]}\n") if checks[name] else Answer(200, "ok")
    return Answer(*report(checks, checks, frozenset(query.get("exclude", ())), verbose="verbose" in query))


def _host(head: bytes) -> str | None:
    """The Host header; None without one. Raises ValueError for a malformed head or two Host headers."""
    if b"\n" in head.replace(b"\r\n", b"") or b"\r" in head.replace(b"\r\n", b"") or b"\0" in head:
        raise ValueError("a line without the end of RFC 9112")
    lines = head.split(b"\r\n")[1:]
    if any(line[:1] in (b" ", b"\t") or b":" not in line for line in lines):
        raise ValueError("a folded or malformed header")
    hosts = [value for name, _, value in (line.partition(b":") for line in lines) if name.lower() == b"host"]
    if len(hosts) > 1:
        raise ValueError("two hosts")
    return hosts[0].decode("latin-1") if hosts else None


def response(request: bytes, sources: Sources, listens_on: str = "") -> bytes:
    """Answer a request, given up to the end of its headers. `listens_on` is the server's address."""
    head_bytes = request.partition(b"\r\n\r\n")[0]
    words = head_bytes.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    try:
        refused = misdirected(_host(head_bytes), listens_on, sources.names)
    except ValueError:
        words, refused = [], ""
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        found = Answer(400, "400 bad request\n")
    elif refused:
        found = Answer(421, f"421 {refused}\n")
    elif words[0] not in ("GET", "HEAD"):
        found = Answer(405, "405 method not allowed\n")
    else:
        try:
            found = answer(words[1], sources)
        except ValueError:  # a target that is no URL
            found = Answer(400, "400 bad request\n")
    body = found.body.encode()
    head = (
        f"HTTP/1.1 {found.status} {_PHRASES[found.status]}\r\nContent-Type: {found.content_type}\r\n"
        f"X-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    return head if words[:1] == ["HEAD"] else head + body


def is_loopback(address: str) -> bool:
    """True when only this machine reaches the IP address; False when unsure."""
    return address.startswith("127.") or address == "::1"


class _Connection:
    """A client's connection: its request so far, then the unsent rest of the answer."""

    __slots__ = ("answer", "request", "socket")

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.request = b""
        self.answer: memoryview | None = None


class Healthz:
    """The server. `fd` is readable when `serve` has work."""

    def __init__(self, address: str, port: int, sources: Sources) -> None:
        self._address = (address, port)
        # Decided once: all clients of an address may see the same.
        self.sources = sources if is_loopback(address) else sources._replace(configuration=None)
        self._connections: dict[int, _Connection] = {}
        self._listener: socket.socket | None = None
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        self._full = logs.Limited(log, most=1, period_s=SAY_S)
        self.retry_at = 0.0
        """The monotonic time of the next call of `listen`; infinity while it accepts connections."""

    def listen(self, now: float) -> None:
        """Listen on the port, or go on after a pause. A failure is logged once and retried, as the kubelet does."""
        address, port = self._address
        try:
            listener = self._listener or listen(address, port, CONNECTIONS)
        except OSError as error:
            level = logging.DEBUG if self.retry_at else logging.ERROR
            text = "cannot serve healthz on %s port %d: %s; choose another --healthz-port, or 0 for none"
            log.log(level, text, address, port, error.strerror)
            self.retry_at = now + RETRY_S
            return
        listener.setblocking(False)
        self._epoll.register(listener, select.EPOLLIN)
        self._listener, self.retry_at = listener, math.inf

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1]) if self._listener else 0

    def serve(self) -> None:
        """Handle all input without waiting."""
        for fd, _ in self._epoll.poll(0, CONNECTIONS + 1):
            if self._listener is not None and fd == self._listener.fileno():
                self._accept(self._listener)
            elif fd in self._connections:
                self._continue(fd, self._connections[fd])

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno in _NO_MORE:
                self._pause(listener, error)
            return  # else it is gone again
        if len(self._connections) >= CONNECTIONS:
            self._drop(next(iter(self._connections)))
        connection.setblocking(False)
        self._connections[connection.fileno()] = _Connection(connection)
        self._epoll.register(connection, select.EPOLLIN)

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """Accept no connection until PAUSE_S is over. The port stays readable: without a pause the loop would spin."""
        address, port = self._address
        text = "cannot accept a connection of healthz on %s port %d: %s; trying again every second"
        self._full.log(logging.WARNING, text, address, port, error.strerror)
        self._epoll.unregister(listener)
        self.retry_at = time.monotonic() + PAUSE_S

    def _continue(self, fd: int, connection: _Connection) -> None:
        try:
            done = self._read(connection) if connection.answer is None else False
            if connection.answer is not None:
                done = self._send(fd, connection)
        except BlockingIOError:
            return
        except OSError:
            log.debug("a client of the healthz port hung up")
            done = True
        if done:
            self._drop(fd)

    def _read(self, connection: _Connection) -> bool:
        """Read the request and prepare the answer; True when the client disconnected. Raises OSError."""
        part = connection.socket.recv(REQUEST_BYTES)
        connection.request += part
        if part and (b"\r\n\r\n" in connection.request or len(connection.request) >= REQUEST_BYTES):
            connection.answer = memoryview(response(connection.request, self.sources, self._address[0]))
        return not part

    def _send(self, fd: int, connection: _Connection) -> bool:
        """Send as much as the socket takes; True when everything is sent. Raises OSError."""
        assert connection.answer is not None
        self._epoll.modify(fd, select.EPOLLOUT)  # a configuration can be longer than a socket's buffer
        connection.answer = connection.answer[connection.socket.send(connection.answer) :]
        return not connection.answer

    def _drop(self, fd: int) -> None:
        connection = self._connections.pop(fd).socket
        self._epoll.unregister(fd)
        connection.close()

    def close(self) -> None:
        """Close every socket."""
        for fd in list(self._connections):
            self._drop(fd)
        self._epoll.close()
        if self._listener is not None:
            self._listener.close()
