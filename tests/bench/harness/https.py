"""Clients of the agent's API and of the runtime's streaming server, and bare TLS servers to compare with."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import yaml

from actors._cri.client import Cri
from tests.agent.agent import Agent
from tests.controlplane.certificates import Authority

BLOCK = 256 * 1024
TURNS = 20
APART_S = 0.06
"""For what an exec leaves in the kernel to be over."""
PROTOCOL = "v4.channel.k8s.io"
"""Of exec and of port-forward by WebSocket."""


def configure(agent: Agent, authority: Authority) -> None:
    """Give an agent a server with TLS and client certificates, before its start."""
    certificate, key = authority.issue("server", "server")
    config = {
        "address": "127.0.0.1",
        "enableServer": True,
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "authentication": {
            "x509": {"clientCAFile": str(authority.path)},
            "webhook": {"enabled": False},
            "anonymous": {"enabled": False},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerLogMaxSize": "10Gi",
    }
    agent.config.write_text(json.dumps(yaml.safe_load(agent.config.read_text()) | config))


def client(authority: Authority) -> ssl.SSLContext:
    """A client with a certificate."""
    secure = ssl.create_default_context(cafile=str(authority.path))
    secure.load_cert_chain(*authority.issue("client", "client"))
    return secure


def connected(port: int, secure: ssl.SSLContext | None, host: str = "127.0.0.1") -> socket.socket:
    """A connection, by TLS if `secure`."""
    plain = socket.create_connection((host, port), timeout=60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as clients in Go
    return secure.wrap_socket(plain, server_hostname="localhost") if secure is not None else plain


def reached(url: SplitResult) -> tuple[socket.socket, str]:
    """A connection to the runtime's streaming server, and what to ask there."""
    assert url.port is not None
    return connected(url.port, None, url.hostname or ""), url.path


# Logs


def log(port: int, secure: ssl.SSLContext, container: str, size: int) -> None:
    """Read a whole log, `default/POD/CONTAINER`, of so many bytes."""
    request = f"GET /containerLogs/{container} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    download(port, secure, request.encode(), size)


def download(port: int, secure: ssl.SSLContext, request: bytes, expected: int) -> None:
    """Read until the end: `expected` bytes, and nothing else but what HTTP has around them."""
    size, buffer = 0, memoryview(bytearray(BLOCK))
    with connected(port, secure) as session:
        session.sendall(request)
        while count := session.recv_into(buffer):
            size += count
    assert expected <= size < expected * 1.01 + 1000, size


@contextlib.contextmanager
def bare_writer(authority: Authority, size: int) -> Iterator[int]:
    """A port at which a process of its own writes `size` bytes by TLS to each who connects."""
    with tempfile.NamedTemporaryFile() as file, socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(0, size, BLOCK):
            file.write(b"x" * BLOCK)
        file.truncate(size)
        with in_a_child(lambda: _write_to_each(listener, Path(file.name), authority)):
            yield listener.getsockname()[1]


def _write_to_each(listener: socket.socket, path: Path, authority: Authority) -> None:
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(*authority.issue("cat", "cat"))
    while True:
        plain, _ = listener.accept()
        with secure.wrap_socket(plain, server_side=True) as session, path.open("rb", buffering=0) as file:
            while block := file.read(BLOCK):
                session.sendall(block)


@contextlib.contextmanager
def in_a_child(serve: Callable[[], None]) -> Iterator[None]:
    """Serve in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            serve()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


# Exec and port-forward


def exec_url(container: str, cri: Cri, command: str, *, stdin: bool = False) -> SplitResult:
    """The runtime's URL of a prepared exec."""
    return urlsplit(cri.exec(container, [command], stdin=stdin, stdout=True, stderr=False, tty=False).result())


def upgrade(path: str) -> bytes:
    """The head of a request for a WebSocket session."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
    ).encode()


def until_said(session: socket.socket, path: str, wanted: bytes) -> int:
    """Open a WebSocket session and read until these bytes come; the bytes that came."""
    with session:
        session.sendall(upgrade(path))
        size, end = 0, b""
        while wanted not in end:
            part = session.recv(BLOCK)
            assert part, end
            size += len(part)
            end = end[-100:] + part[-400:]
        return size


def run(session: socket.socket, path: str) -> int:
    """An exec until its status comes; the bytes that came."""
    return until_said(session, path, b'"status":"Success"')


def in_turns(ways: Sequence[Callable[[], object]], apart_s: float, turns: int = TURNS) -> list[float]:
    """Median seconds of each way; another one begins each time."""
    times: list[list[float]] = [[] for _ in ways]
    for turn in range(turns):
        for number in range(len(ways)):
            way = (turn + number) % len(ways)
            time.sleep(apart_s)
            began = time.monotonic()
            ways[way]()
            times[way].append(time.monotonic() - began)
    return [statistics.median(one) for one in times]
