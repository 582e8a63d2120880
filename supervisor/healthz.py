"""The healthz port: /healthz, /healthz/ACTOR, `?verbose` and `?exclude=ACTOR`, as Kubernetes' components answer.

In the supervisor's loop, so that it answers when no actor can, and without a thread: one epoll descriptor stands for
every connection. Bounded: few connections, short requests, no keep-alive, the oldest gives way. It tells names of
actors and nothing else, without authentication, on 127.0.0.1 unless configured otherwise.
https://kubernetes.io/docs/reference/using-api/health-checks/
"""

from __future__ import annotations

import logging
import math
import select
import socket
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, urlsplit

log = logging.getLogger(__name__)

CONNECTIONS = 32
REQUEST_BYTES = 4096
RETRY_S = 5.0
Answer = tuple[int, str]
_PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}


def answer(target: str, checks: Mapping[str, str]) -> Answer:
    """Status and text for a request target, from what is wrong by check."""
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    name = url.path.removeprefix("/healthz/")
    if url.path not in ("/healthz", "/healthz/"):
        if name == url.path or name not in checks:
            return 404, "404 page not found\n"
        return (500, f"internal server error: {checks[name]}\n") if checks[name] else (200, "ok")
    wanted = {name: problem for name, problem in checks.items() if name not in query.get("exclude", ())}
    lines = [f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok" for name, problem in wanted.items()]
    if any(wanted.values()):
        return 500, "\n".join([*lines, "healthz check failed", ""])
    return 200, "\n".join([*lines, "healthz check passed", ""]) if "verbose" in query else "ok"


def response(request: bytes, checks: Callable[[], Mapping[str, str]]) -> bytes:
    """The answer to what a client sent, up to the end of its headers."""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        status, text = 400, "400 bad request\n"
    elif words[0] not in ("GET", "HEAD"):
        status, text = 405, "405 method not allowed\n"
    else:
        try:
            status, text = answer(words[1], checks())
        except ValueError:  # a target that is no URL
            status, text = 400, "400 bad request\n"
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"X-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    return head if words[0] == "HEAD" else head + body


class Healthz:
    """A listening port. `fd` is readable when `serve` has something to do."""

    def __init__(self, address: str, port: int, checks: Callable[[], Mapping[str, str]]) -> None:
        self._address = (address, port)
        self._checks = checks
        self._connections: dict[int, tuple[socket.socket, bytes]] = {}
        self._listener: socket.socket | None = None
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        self.retry_at = 0.0
        """When `listen` is to be called, on the monotonic clock; infinity once it listens."""

    def listen(self, now: float) -> None:
        """Take the port. What keeps it from that is said once, and it is tried again as the kubelet does."""
        address, port = self._address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._listener = socket.create_server((address, port), family=family, backlog=CONNECTIONS)
        except OSError as error:
            level = logging.DEBUG if self.retry_at else logging.ERROR
            text = "cannot serve healthz on %s port %d: %s; give another with --healthz-port, or 0 for none"
            log.log(level, text, address, port, error.strerror)
            self.retry_at = now + RETRY_S
            return
        self._listener.setblocking(False)
        self._epoll.register(self._listener, select.EPOLLIN)
        self.retry_at = math.inf

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1]) if self._listener else 0

    def serve(self) -> None:
        """Take what has come, without waiting."""
        for fd, _ in self._epoll.poll(0, CONNECTIONS + 1):
            if self._listener is not None and fd == self._listener.fileno():
                self._accept(self._listener)
            elif fd in self._connections:
                self._read(fd)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # gone again, or no descriptor left
            return
        if len(self._connections) >= CONNECTIONS:
            self._drop(next(iter(self._connections)))
        connection.setblocking(False)
        self._connections[connection.fileno()] = (connection, b"")
        self._epoll.register(connection, select.EPOLLIN)

    def _read(self, fd: int) -> None:
        connection, request = self._connections[fd]
        try:
            part = connection.recv(REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        request += part
        if part and b"\r\n\r\n" not in request and len(request) < REQUEST_BYTES:
            self._connections[fd] = (connection, request)
            return
        if part:
            try:
                connection.send(response(request, self._checks))  # less than any socket's buffer
            except OSError:
                log.debug("a client of the healthz port hung up")
        self._drop(fd)

    def _drop(self, fd: int) -> None:
        connection, _ = self._connections.pop(fd)
        self._epoll.unregister(fd)
        connection.close()

    def close(self) -> None:
        """Close every socket."""
        for fd in list(self._connections):
            self._drop(fd)
        self._epoll.close()
        if self._listener is not None:
            self._listener.close()
