"""The server's loop and ports in this process with a test's handlers, and clients for them."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from actors._net.loop import Loop
from actors._net.stream import Stream
from actors.server.actor import answer_to, answer_without_route
from actors.server.base.http import Request, Response, Upgraded
from actors.server.policy import Route, Table
from actors.server.transport.listening import Connections, Port
from actors.server.transport.tls import TlsFiles, context
from tests.controlplane.certificates import Authority


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The condition's value once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.005)
    return value


class Site:
    """A loop in a thread, with a port of each kind."""

    def __init__(self, routes: tuple[Route, ...] = (), files: TlsFiles | None = None) -> None:
        self.loop, self.connections = Loop(), Connections()
        self.table = Table(routes)
        self.crashes: list[BaseException] = []
        self.seen: list[Request] = []
        self.loop.start(self.crashes.append)
        self.plain = self._listen(None)
        made = context(files) if files is not None else None
        self.secure = self._listen(lambda: made) if made is not None else 0  # type: ignore[arg-type, return-value]

    def _listen(self, tls: Callable[[], ssl.SSLContext] | None) -> int:
        port = Port(self.loop, self.connections, self.serve, tls)
        self.loop.call(lambda: self.loop.spawn(port.listen("127.0.0.1", 0)))
        until(lambda: port.listener is not None)
        assert port.listener is not None
        return int(port.listener.getsockname()[1])

    async def serve(self, _: Stream, request: Request) -> Response | Upgraded:
        self.seen.append(request)
        found = self.table.find(request.method, request.path)
        if found.route is None:
            return answer_without_route(found)
        request.params = found.params
        try:
            return await found.route.handler(None, request)  # type: ignore[arg-type]
        except Exception as error:
            return answer_to(error, request.path)

    def close(self) -> None:
        thread = next(one for one in threading.enumerate() if one.name == "server")
        self.loop.stop()
        thread.join(10)
        assert not self.crashes


@contextlib.contextmanager
def site(*routes: Route, files: TlsFiles | None = None) -> Iterator[Site]:
    """A Site, closed afterwards."""
    made = Site(routes, files)
    try:
        yield made
    finally:
        made.close()


def client(port: int, tls: ssl.SSLContext | None = None) -> socket.socket:
    """A connection."""
    connected = socket.create_connection(("127.0.0.1", port), timeout=20)
    return tls.wrap_socket(connected, server_hostname="localhost") if tls is not None else connected


def say(port: int, request: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """All bytes of the answer, up to the end of the connection."""
    with client(port, tls) as connected:
        connected.sendall(request)
        return read_all(connected)


def read_all(connected: socket.socket) -> bytes:
    """All bytes up to the end."""
    parts = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connected.recv(65536):
            parts += part
    return parts


def status_of(answer: bytes) -> int:
    """The status of an HTTP answer."""
    return int(answer.split(b" ", 2)[1])


def read_while_sending(connected: socket.socket, data: bytes, enough: int = sys.maxsize) -> bytes:
    """Send `data`, and return `enough` bytes received meanwhile, or all up to the end.

    One thread does both, because a TLS session is not for two. Data that cannot be sent any more is dropped.
    """
    connected.setblocking(False)
    parts, left = bytearray(), memoryview(data)
    while True:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            part = connected.recv(65536)
            parts += part
            if not part or len(parts) >= enough:
                return bytes(parts)
            continue  # a session may hold more that select does not see
        try:
            left = left[connected.send(left[:65536]) :] if left else left
        except (BlockingIOError, ssl.SSLWantWriteError):
            pass
        except OSError:
            left = left[:0]
        assert any(select.select([connected], [connected] if left else [], [], 20)), "nothing more comes"


def server_files(pki: Authority) -> TlsFiles:
    """The files of the certificate that the fixture `pki` issued."""
    return TlsFiles(str(pki.directory / "server.crt"), str(pki.directory / "server.key"))


async def hello(_: Any, request: Request) -> Response:
    return Response(200, f"hello {request.params.get('name', '')}".encode())


async def echo(_: Any, request: Request) -> Response:
    assert request.read_body is not None
    return Response(200, await request.read_body(1000))


HELLO = (Route("GET", "/hello/{name}", hello), Route("POST", "/echo", echo))
"""A greeting by name, and a body of at most 1,000 bytes given back."""
