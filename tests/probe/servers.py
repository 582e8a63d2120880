"""Servers on loopback that answer probes, well or badly, by the path they are asked for."""

import contextlib
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.controlplane import certificates

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class _Handler(socketserver.StreamRequestHandler):
    server: "Server"

    def handle(self) -> None:
        line = self.rfile.readline().decode()
        head = [line.strip()]
        while (header := self.rfile.readline()) not in (b"\r\n", b"\n", b""):
            head.append(header.decode().strip())
        self.server.requests.append(head)
        path = line.split(" ")[1] if line.count(" ") == 2 else ""
        with contextlib.suppress(OSError):
            self.answer(path)

    def answer(self, path: str) -> None:  # noqa: PLR0912 - one line of this table for each way to answer
        say = self.wfile.write
        name, _, argument = path.strip("/").partition("/")
        match name:
            case "status":
                say(f"HTTP/1.1 {argument} Said\r\nContent-Length: 0\r\n\r\n".encode())
            case "redirect":
                say(f"HTTP/1.1 302 Found\r\nLocation: {argument}\r\nContent-Length: 5\r\n\r\n".encode())
                self.server.over.wait(30)  # the announced body never comes
            case "elsewhere":
                say(b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.invalid/\r\nContent-Length: 15\r\n\r\n")
                time.sleep(0.05)  # a segment of its own
                say(b"<a href>Found</")
            case "moved":
                say(b"HTTP/1.1 301 Moved\r\nContent-Length: 4\r\n\r\nhere")
            case "hang":
                self.server.over.wait(30)
            case "gated" | "once":
                if name == "gated" or sum(" /once " in head[0] for head in list(self.server.requests)) > 1:
                    self.server.gate.wait(30)
                say(b"HTTP/1.1 500 No\r\n\r\n")
            case "drip":
                for byte in OK * 10:
                    say(bytes([byte]))
                    if self.server.over.wait(0.2):
                        return
            case "half":
                say(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf")
                self.server.over.wait(30)
            case "garbage":
                say(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
            case "huge":
                say(b"HTTP/1.1 200 OK\r\n\r\n")
                while not self.server.over.is_set():
                    say(b"x" * 65536)
            case "chunked":
                say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")
                self.server.over.wait(30)
            case "interim":
                say(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
                time.sleep(0.05)
                say(OK)
            case "close":
                pass
            case "reset":
                linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            case _:
                say(self.server.answer)


class Server(socketserver.ThreadingTCPServer):
    """`requests` holds the lines of each request's head. Without a known path it says `answer`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[list[str]] = []
        self.over = threading.Event()
        self.gate = threading.Event()
        """Until then, `gated` has no answer, nor has any but the first request of `once`."""
        self.answer = OK
        self.port: int = self.server_address[1]
        self._tls = tls

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self._tls is None:
            return connection, address
        return self._tls.wrap_socket(connection, server_side=True), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: probes may hang up early."""


@contextlib.contextmanager
def http_server(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(tls)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.over.set()
        server.gate.set()
        server.shutdown()
        server.server_close()


def self_signed(directory: Path) -> ssl.SSLContext:
    """A server context with an untrusted certificate for another name, and with a small key."""
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    certificate, key = certificates.self_signed(directory / "own", certificates.name_of("other.invalid"), small)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.load_cert_chain(certificate, key)
    return context


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port whose queue of connections is full: no connection is refused or accepted."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextlib.contextmanager
def grpc_server(health: bool = True, port: int = 0) -> Iterator[int]:
    """grpc.health.v1 where asked: `` and `good` serve, `bad` does not, `slow` hangs, another is NOT_FOUND."""
    over = threading.Event()

    def check(request: bytes, context: grpc.ServicerContext) -> bytes:
        service = request[2:].decode()
        if service == "slow":
            over.wait(30)
        if service == "huge":
            return b"\x08\x01" + b"\x00" * 1024 * 1024
        if service not in ("", "good", "bad", "slow"):
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return b"\x08\x02" if service == "bad" else b"\x08\x01"

    server = grpc.server(ThreadPoolExecutor(4))
    if health:
        handler = grpc.unary_unary_rpc_method_handler(check)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
        )
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield port
    finally:
        over.set()
        server.stop(0).wait()
