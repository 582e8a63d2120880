"""Clients in numbers that say nothing, or hardly anything: the others are served, and memory is bounded."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.server import connection
from actors.server.http import Request, Response
from actors.server.policy import Route
from actors.server.tls import TlsFiles
from tests.controlplane.certificates import Authority
from tests.server.site import Site, client, read_all, site, until

IDLE = 10_000
MOST_BYTES_EACH = 16 * 1024
"""Of a connection without TLS, coroutine and parser of its first request included."""
CLIENTS = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print(len(held), flush=True)
sys.stdin.read()
"""
"""A process of its own: server and clients together have more descriptors than one may have."""


async def hello(_: Any, __: Request) -> Response:
    return Response(200, b"hello")


@contextlib.contextmanager
def idle_clients(port: int, count: int) -> Iterator[None]:
    command = [sys.executable, "-c", CLIENTS, str(port), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == count
            yield
        finally:
            process.kill()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def is_served(site_: Site) -> None:
    with client(site_.plain) as one:
        one.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
        assert read_all(one).endswith(b"hello")


def test_ten_thousand_idle_connections_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_S", 100.0)
    with site(Route("GET", "/hello", hello)) as made:
        assert made.connections.most > IDLE, "the machine lets a process have too few files: ulimit -n"
        is_served(made)
        before = resident_bytes()
        with idle_clients(made.plain, IDLE):
            until(lambda: made.connections.count == IDLE, 60)
            began = time.monotonic()
            is_served(made)
            assert time.monotonic() - began < 10
            assert (resident_bytes() - before) / IDLE < MOST_BYTES_EACH
        until(lambda: made.connections.count == 0, 60)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    made = Authority(tmp_path_factory.mktemp("pki") / "pki")
    made.issue("server", "node")
    return TlsFiles(str(made.directory / "server.crt"), str(made.directory / "server.key"))


def test_clients_that_drip_or_never_begin_are_cut_off_and_others_are_served(
    pki: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEADER_S", 2.0)
    with site(Route("GET", "/hello", hello), files=pki) as made:
        dripping = [client(made.plain) for _ in range(100)]
        silent = [client(made.secure) for _ in range(100)]
        over = threading.Event()

        def drip() -> None:
            while not over.wait(0.05):
                for one in dripping:
                    with contextlib.suppress(OSError):
                        one.send(b"x")

        dripper = threading.Thread(target=drip)
        for one in dripping:
            one.sendall(b"GET /hello HTTP/1.1\r\nX-Slow: ")
        dripper.start()
        try:
            until(lambda: made.connections.count == 200)
            is_served(made)
            until(lambda: made.connections.count == 0, 60)
        finally:
            over.set()
            dripper.join()
        for one in (*dripping, *silent):
            one.close()


def test_a_client_that_takes_nothing_of_its_answer_holds_one_connection_and_no_memory() -> None:
    parts = 0

    async def endless(_: Any, __: Request) -> Response:
        async def body() -> Any:
            nonlocal parts
            while True:
                parts += 1
                yield b"x" * 65536

        return Response(200, body())

    with site(Route("GET", "/endless", endless), Route("GET", "/hello", hello)) as made:
        deaf = [client(made.plain) for _ in range(50)]
        for one in deaf:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: len(made.seen) == 50)
        is_served(made)
        seen = -1
        while seen != parts:
            seen = parts
            time.sleep(0.5)
        assert parts < 50 * 200, "each is stopped once the kernel's buffers are full"
        for one in deaf:
            one.close()
        until(lambda: made.connections.count == 0)
