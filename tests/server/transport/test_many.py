"""Many idle or slow clients: the others are served, and memory is bounded."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._net.loop import LONG_STEPS_AT_ONCE, Loop
from actors.server.base.http import Request, Response
from actors.server.policy import Route
from actors.server.transport import connection, listening
from actors.server.transport.tls import TlsFiles
from tests.controlplane.certificates import Authority
from tests.harness import Stalls
from tests.server.site import Site, client, read_all, say, site, until

IDLE = 10_000
IDLE_TLS = int(os.environ.get("NODEVISOR_IDLE_TLS", "300"))
"""Each handshake is a millisecond of both ends' time: of 10,000, half a minute on a busy machine."""
FIRST_TLS = 100
"""Connections before the measured ones: they take the memory that the process needs once."""
MAX_BYTES_EACH = 16 * 1024
"""Of a connection without TLS, coroutine and parser of its first request included."""
MAX_TLS_BYTES_EACH = 48 * 1024
"""45 KB with the OpenSSL 4.0 of cryptography; 20 KB with the ssl module, whose reads a client can keep going."""
CLIENTS = """
import socket, ssl, sys
port, count, secure, last = (int(arg) for arg in sys.argv[1:])
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
def client():
    connected = socket.create_connection(("127.0.0.1", port))
    return tls.wrap_socket(connected) if secure else connected
sys.stdin.readline()
held = [client() for _ in range(count)]
print(len(held), flush=True)
if last:
    one = client()
    one.sendall(b"GET /hello HTTP/1.0\\r\\n\\r\\n")
    print(one.makefile("rb").read().rpartition(b"\\n")[2].decode(), flush=True)
sys.stdin.read()
"""
"""Run in its own process: server and clients together would exceed the limit of descriptors."""


async def hello(_: Any, __: Request) -> Response:
    return Response(200, b"hello")


class Clients:
    """Idle clients in their own process, and a client that sends a request when all are connected."""

    def __init__(self, port: int, count: int, *, secure: bool = False, last: bool = False) -> None:
        command = [sys.executable, "-c", CLIENTS, str(port), str(count), str(int(secure)), str(int(last))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def idle_clients(port: int, count: int, *, secure: bool = False) -> Iterator[None]:
    with Clients(port, count, secure=secure) as clients:
        clients.begin()
        assert int(clients.line()) == count
        yield


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def is_served(site_: Site) -> None:
    with client(site_.plain) as one:
        one.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
        assert read_all(one).endswith(b"hello")


def test_ten_thousand_idle_connections_delay_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_S", 100.0)
    with site(Route("GET", "/hello", hello)) as made:
        assert made.connections.limit > IDLE, "the machine lets a process have too few files: ulimit -n"
        is_served(made)
        before = resident_bytes()
        with idle_clients(made.plain, IDLE):
            until(lambda: made.connections.count == IDLE, 60)
            began = time.monotonic()
            is_served(made)
            assert time.monotonic() - began < 10
            assert (resident_bytes() - before) / IDLE < MAX_BYTES_EACH
        until(lambda: made.connections.count == 0, 60)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    made = Authority(tmp_path_factory.mktemp("pki") / "pki")
    made.issue("server", "node")
    return TlsFiles(str(made.directory / "server.crt"), str(made.directory / "server.key"))


def test_few_long_steps_run_between_two_polls() -> None:
    loop = Loop()
    steps = [loop.before_long_step() for _ in range(2 * LONG_STEPS_AT_ONCE + 1)]
    done = []
    for _ in range(3):
        loop._run_once()
        done.append(sum(step.done() for step in steps))
    assert done == [LONG_STEPS_AT_ONCE, 2 * LONG_STEPS_AT_ONCE, 2 * LONG_STEPS_AT_ONCE + 1]


def slowest(site_: Site, tls: ssl.SSLContext, over: threading.Event) -> float:
    """Seconds of the slowest answer on one connection, whose requests follow one another until `over`."""
    worst = 0.0
    with client(site_.secure, tls) as one:
        while not over.wait(0.01):
            began = time.monotonic()
            one.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"hello"):
                part = one.recv(4096)
                assert part, "it was cut off"
                answer += part
            worst = max(worst, time.monotonic() - began)
    return worst


@pytest.mark.timeout(120 + IDLE_TLS / 50)
def test_idle_tls_connections_are_small_and_delay_no_client(pki: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_S", 60 + IDLE_TLS / 50)
    tls = ssl.create_default_context(cafile=str(Path(pki.certificate).with_name("ca.crt")))
    with (
        site(Route("GET", "/hello", hello), files=pki) as made,
        ThreadPoolExecutor(1) as pool,
        Stalls() as machine,
    ):
        over = threading.Event()
        asking = pool.submit(slowest, made, tls, over)
        until(lambda: made.connections.count == 1)
        with idle_clients(made.secure, FIRST_TLS, secure=True), Clients(made.secure, IDLE_TLS, secure=True) as clients:
            until(lambda: made.connections.count == FIRST_TLS + 1, 60)
            before, began = resident_bytes(), time.monotonic()
            clients.begin()
            assert int(clients.line()) == IDLE_TLS
            took_s = time.monotonic() - began
            until(lambda: made.connections.count == FIRST_TLS + IDLE_TLS + 1, 60)
            each = (resident_bytes() - before) / IDLE_TLS
            over.set()
            worst_s = asking.result(20)
            print(f"{IDLE_TLS} in {took_s:.1f} s, {each:.0f} bytes each, slowest answer {worst_s * 1000:.0f} ms")
            assert each < MAX_TLS_BYTES_EACH
            assert worst_s < 5 + machine.longest_s
            began = time.monotonic()
            assert say(made.secure, b"GET /hello HTTP/1.0\r\n\r\n", tls).endswith(b"hello")
            assert time.monotonic() - began < 5 + machine.longest_s
        until(lambda: made.connections.count == 0, 60)


def test_clients_without_handshake_or_request_are_replaced(pki: TlsFiles) -> None:
    with site(Route("GET", "/hello", hello), files=pki) as made:
        made.connections.limit = 6
        silent = [client(made.secure) for _ in range(3)]
        until(lambda: made.connections.count == 3)
        dripping = [client(made.plain) for _ in range(3)]
        for one in dripping:
            one.sendall(b"GET /hello HTTP/1.1\r\nX-Slow: ")
        until(lambda: made.connections.count == 6)
        began = time.monotonic()
        is_served(made)
        assert time.monotonic() - began < connection.HEADER_S / 2, "not only when they were cut off"
        assert read_all(silent[0]) == b"", "the first that came is the first to go"
        for one in (*silent, *dripping):
            one.close()


def deaf_now(made: Site) -> int:
    """Clients that read nothing."""
    return sum(one.stalled_since is not None for one in list(made.connections.streams))


def test_stalled_clients_are_replaced_when_none_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(_: Any, __: Request) -> Response:
        async def body() -> Any:
            while True:
                yield b"x" * 65536

        return Response(200, body())

    with site(Route("GET", "/endless", endless), Route("GET", "/hello", hello)) as made:
        made.connections.limit = 2
        deaf = [client(made.plain) for _ in range(2)]
        for one in deaf:
            one.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: sum(one.stalled_since is not None for one in list(made.connections.streams)) == 2)
        with client(made.plain) as late:
            late.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
            until(lambda: made.connections._full._said, 20)
            assert made.connections.count == 2, "who has not stalled for long stays"
            monkeypatch.setattr(listening, "STALLED_S", 0.0)
            assert read_all(late).endswith(b"hello")
        for one in deaf:
            one.close()


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "in parts"])
def test_bytes_waiting_for_stalled_clients_are_bounded(parts: bool) -> None:
    async def large(_: Any, __: Request) -> Response:
        async def body() -> Any:
            yield b"x" * (16 << 20)

        return Response(200, body() if parts else b"x" * (16 << 20))  # more than what the kernel takes off it

    with site(Route("GET", "/large", large), Route("GET", "/hello", hello)) as made:
        send_budget = made.connections.send_budget
        send_budget.limit = 50 << 20
        deaf = []
        for count in range(1, 7):
            deaf.append(client(made.plain))
            deaf[-1].sendall(b"GET /large HTTP/1.0\r\n\r\n")
            until(lambda count=count: len(made.seen) == count and deaf_now(made) == min(count, 3))
        until(lambda: send_budget.bytes <= send_budget.limit)
        until(lambda: made.connections.count == 3)
        assert len(read_all(deaf[0])) < 16 << 20, "the first that took nothing is the first to go"
        assert len(read_all(deaf[-1])) > 16 << 20
        assert say(made.plain, b"GET /hello HTTP/1.0\r\n\r\n").endswith(b"hello")
        for one in deaf:
            one.close()
        until(lambda: send_budget.bytes == 0)


def test_bytes_of_heads_are_bounded_and_the_longest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_S", 100.0)  # no head is cut off because it is late

    def begin(size: int) -> socket.socket:
        connected = client(made.plain)
        connected.sendall(b"GET /hello HTTP/1.1\r\nX-Long: " + b"x" * size)
        return connected

    with site(Route("GET", "/hello", hello)) as made:
        budget = made.connections.head_budget
        budget.limit = 2 << 20
        held = [begin(100_000) for _ in range(10)]
        until(lambda: budget.bytes > 1_000_000)
        longest = begin(900_000)
        until(lambda: budget.bytes > 1_900_000)
        small = begin(1000)
        held.append(begin(300_000))
        assert read_all(longest) == b""
        until(lambda: 1_300_000 < budget.bytes <= budget.limit)
        for one in (*held, small):
            one.sendall(b"\r\nConnection: close\r\nHost: x\r\n\r\n")
            assert read_all(one).endswith(b"hello")
            one.close()
        longest.close()
        until(lambda: budget.bytes == 0)
        with begin(1_000_000) as alone:
            alone.sendall(b"\r\nConnection: close\r\nHost: x\r\n\r\n")
            assert read_all(alone).endswith(b"hello"), "a head may have up to 1 MiB"


def test_heads_count_until_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their clients wait for a review, perhaps, and have sent more."""
    monkeypatch.setattr(connection, "LEFT_S", 0.05)
    monkeypatch.setattr(connection, "HEADER_S", 100.0)
    ended = threading.Event()

    async def wait(_: Any, __: Request) -> Response:
        try:
            await Future[None]()
        finally:
            ended.set()
        return Response()

    with site(Route("GET", "/wait", wait), Route("GET", "/hello", hello)) as made:
        budget = made.connections.head_budget
        budget.limit = 1_000_000
        with client(made.plain) as waiting, client(made.plain) as other:
            head = b"Host: x\r\nX-Long: " + b"x" * 600_000
            waiting.sendall(b"GET /wait HTTP/1.1\r\n" + head + b"\r\n\r\n")
            until(lambda: made.seen)
            waiting.sendall(b"GET /hello HTTP/1.1\r\n")
            other.sendall(b"GET /hello HTTP/1.0\r\n" + head[:-100_000])
            assert ended.wait(20), "the client with the longer head is cut off"
            other.sendall(b"\r\n\r\n")
            assert read_all(other).endswith(b"hello")
        until(lambda: budget.bytes == 0)


def test_idle_clients_are_replaced_without_free_descriptors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with site(Route("GET", "/hello", hello)) as made, Clients(made.plain, 100, last=True) as clients:
        taken = {int(name) for name in os.listdir("/proc/self/fd")}
        free = itertools.islice((number for number in itertools.count() if number not in taken), 20)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, before[1]))
        try:
            clients.begin()
            assert clients.line() == b"100"
            assert clients.line() == b"hello"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        said = [record.getMessage() for record in caplog.records if "Too many open files" in record.getMessage()]
        assert len(said) == 1
        assert "replaces the longest idle one" in said[0]


def test_dripping_and_silent_clients_are_cut_off(pki: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_S", 5.0)  # no client is cut off before the last one has connected
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


def test_stalled_client_holds_one_connection_and_no_memory() -> None:
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
