"""A server of static pods that lies: each path answers in its own wrong way."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable

POD = """apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers:
  - {{name: c, image: {image}}}
"""
HUGE = 11 * 1024 * 1024


def pod(name: str, image: str = "busybox") -> bytes:
    return POD.format(name=name, image=image).encode()


def pod_list(*pods: tuple[str, str]) -> bytes:
    items = "".join(
        f"- metadata: {{name: {name}}}\n  spec: {{containers: [{{name: c, image: {image}}}]}}\n" for name, image in pods
    )
    return b"apiVersion: v1\nkind: PodList\nitems:\n" + items.encode()


def whole(body: bytes, status: str = "200 OK", *more: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return whole(b"", status, f"Location: {location}")


def drip(connection: socket.socket, stopped: threading.Event) -> None:
    """A whole head, and a body of which a byte comes now and then, for ever."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    _bytes_for_ever(connection, stopped)


def drip_head(connection: socket.socket, stopped: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    _bytes_for_ever(connection, stopped)


def _bytes_for_ever(connection: socket.socket, stopped: threading.Event) -> None:
    while not stopped.wait(0.05):
        connection.sendall(b"a")


def huge_chunks(connection: socket.socket, _: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(HUGE // 65536 + 1):
        connection.sendall(b"10000\r\n" + b"#" * 65536 + b"\r\n")


Answer = bytes | Callable[[socket.socket, threading.Event], None]


class LyingServer(socketserver.ThreadingTCPServer):
    """Answers every request with `answer`, or by path with `paths`; keeps the heads of all requests."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, answer: Answer = b"", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tls = tls
        self.answer = answer
        self.paths: dict[str, Answer] = {}
        self.heads: list[str] = []
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        port: int = self.server_address[1]
        return port

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/pods"

    def __enter__(self) -> LyingServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopped.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """The client went away, as it should."""


class _Handler(socketserver.BaseRequestHandler):
    server: LyingServer

    def setup(self) -> None:
        if self.server.tls is not None:
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.request.recv(65536)
            if not part:
                return
            head += part
        self.server.heads.append(head.decode("latin-1"))
        answer = self.server.paths.get(head.split()[1].decode(), self.server.answer)
        if isinstance(answer, bytes):
            self.request.sendall(answer)
        else:
            answer(self.request, self.server.stopped)
