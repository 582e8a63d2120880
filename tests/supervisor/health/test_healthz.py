"""The healthz port: its answers, and clients that would block the loop."""

from __future__ import annotations

import errno
import http.client
import json
import math
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proto.agent.supervisor import Exited, Note, PeerState, PeerStates, Started
from supervisor.health.checks import GRACE_S, START_S, Health
from supervisor.health.healthz import (
    CONNECTIONS,
    PAUSE_S,
    REQUEST_BYTES,
    Healthz,
    Sources,
    answer,
    is_loopback,
    response,
)
from supervisor.host import settings_file
from tests.harness import wait_for
from tests.ports import free_port

FINE = {"ping": "", "stats": "", "probe": ""}
BROKEN = FINE | {"probe": "not in service for 7 s"}


@pytest.mark.parametrize(
    ("target", "checks", "status", "text"),
    [
        ("/healthz", FINE, 200, "ok"),
        ("/healthz/", FINE, 200, "ok"),
        ("/healthz?verbose", FINE, 200, "[+]ping ok\n[+]stats ok\n[+]probe ok\nhealthz check passed\n"),
        (
            "/healthz",
            BROKEN,
            500,
            "[+]ping ok\n[+]stats ok\n[-]probe failed: not in service for 7 s\nhealthz check failed\n",
        ),
        ("/healthz?exclude=probe", BROKEN, 200, "ok"),
        (
            "/healthz?exclude=probe&verbose=1",
            BROKEN,
            200,
            "[+]ping ok\n[+]stats ok\n[+]probe excluded: ok\nhealthz check passed\n",
        ),
        (
            "/healthz?exclude=stats&exclude=no%22&exclude=a",
            BROKEN,
            500,
            "[+]ping ok\n[+]stats excluded: ok\n[-]probe failed: not in service for 7 s\n"
            'warn: some health checks cannot be excluded: no matches for "a","no\\""\nhealthz check failed\n',
        ),
        ("/healthz?exclude=a", FINE, 200, "ok"),
        ("/healthz/probe", BROKEN, 500, "internal server error: not in service for 7 s\n"),
        ("/healthz/stats", BROKEN, 200, "ok"),
        ("/healthz/nobody", FINE, 404, "404 page not found\n"),
        ("/", FINE, 404, "404 page not found\n"),
        ("/metrics", FINE, 404, "404 page not found\n"),
    ],
)
def test_healthz_answers_as_kubernetes_components_do(
    target: str, checks: dict[str, str], status: int, text: str
) -> None:
    assert answer(target, Sources(lambda: checks)) == (status, text, "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /healthz HTTP/1.1", b"200"),
        (b"HEAD /healthz HTTP/1.0", b"200"),
        (b"POST /healthz HTTP/1.1", b"405"),
        (b"GET /healthz", b"400"),
        (b"GET http://[ HTTP/1.1", b"400"),
        (b"\xff\xfe", b"400"),
        (b"", b"400"),
    ],
)
def test_every_request_has_an_answer(request_line: bytes, status: bytes) -> None:
    head, _, body = response(request_line + b"\r\n\r\n", Sources(lambda: FINE)).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert bool(body) != request_line.startswith(b"HEAD")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"", b"200"),
        (b"Host: localhost:10248", b"200"),
        (b"host:  LOCALHOST. ", b"200"),
        (b"Host: 127.0.0.2", b"200"),
        (b"Host: [::1]:10248", b"200"),
        (b"Host: 10.0.0.7", b"200"),
        (b"Host: the-node", b"200"),
        (b"Host: evil.example", b"421"),
        (b"Host: 10.0.0.8", b"421"),
        (b"Host: ", b"421"),
        (b"Host: localhost.evil.example", b"421"),
        (b"Host: localhost\r\nHost: evil.example", b"400"),
        (b"Host: localhost\nHost: evil.example", b"400"),
        (b"Host:\r\n evil.example", b"400"),
        (b"nothing", b"400"),
    ],
)
@pytest.mark.parametrize("path", [b"/healthz", b"/configz"])
def test_other_host_names_are_misdirected(path: bytes, headers: bytes, status: bytes) -> None:
    sources = Sources(lambda: FINE, lambda: "{}", ("the-node", "x"))
    request = b"GET " + path + b" HTTP/1.1\r\n" + headers + (b"\r\n" if headers else b"") + b"\r\n"
    said = response(request, sources, "10.0.0.7")
    assert said.split()[1] == status
    assert status != b"421" or b"localhost, the-node, x or the address" in said


# The configuration


def test_configz_has_the_configuration_in_force(tmp_path: Path) -> None:
    sources = Sources(lambda: FINE, lambda: settings_file.read_in_force(tmp_path))
    assert answer("/configz", sources).status == 503
    for max_pods in (20, 30):
        shown = {
            "configuration": {"maxPods": max_pods},
            "secrets": {"staticPodURL": "http://me:s3cret@host/"},
            "sources": {"maxPods": "/etc/kubelet.yaml:3"},
        }
        settings_file.write_configuration(str(tmp_path), json.dumps(shown).encode())
        status, text, content_type = answer("/configz", sources)
        assert (status, content_type) == (200, "application/json")
        assert json.loads(text) == {"kubeletconfig": {"maxPods": max_pods}}
    assert answer("/configz/maxPods", sources).status == 404


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:127.0.0.1", False),
    ],
)
def test_only_a_loopback_address_is_private(address: str, private: bool) -> None:
    assert is_loopback(address) == private


def test_configz_is_refused_to_other_machines() -> None:
    healthz = Healthz("0.0.0.0", 0, Sources(lambda: FINE, lambda: '{"maxPods":20}'))
    assert answer("/configz", healthz.sources).status == 403
    assert answer("/healthz", healthz.sources).status == 200
    healthz.close()


# Health by actor


def test_actor_has_time_to_start_and_restart() -> None:
    health = Health(["a"], 100.0)
    assert health.checks(100.0 + START_S) == {"ping": "", "a": ""}
    assert health.checks(100.1 + START_S)["a"]
    health.on_event(Started(name="a", incarnation=1), 140.0)
    assert health.checks(1000.0)["a"] == ""
    health.on_event(Exited(name="a", incarnation=1, reason="killed"), 1000.0)
    health.on_event(Exited(name="a", incarnation=2, reason="killed"), 1001.0)
    assert health.checks(1000.0 + GRACE_S)["a"] == ""
    assert health.checks(1007.0)["a"] == "not in service for 7 s"
    health.on_event(PeerStates(peers=(PeerState(name="a", incarnation=3, ready=True),)), 1008.0)
    assert health.checks(1008.0)["a"] == ""


def test_degraded_actor_shows_no_text_of_its_exceptions() -> None:
    health = Health(["a"], 0.0)
    health.on_event(Started(name="a", incarnation=1), 1.0)
    text = "degraded: more than 5 restarts in 60 s; last: exit 70: ValueError: canary (death record /run/x)"
    health.on_event(Note(level="error", actor="a", text=text, reason="Degraded"), 2.0)
    said = answer("/healthz?verbose", Sources(lambda: health.checks(3.0)))
    assert (said.status, said.body) == (500, "[+]ping ok\n[-]a failed: degraded\nhealthz check failed\n")
    health.on_event(Note(level="info", actor="a", text="recovered", reason="Recovered"), 4.0)
    assert health.checks(5.0)["a"] == ""


def test_unknown_actors_are_not_checked() -> None:
    health = Health(["a"], 0.0)
    health.on_event(Exited(name="b", incarnation=1, reason=""), 1.0)
    assert set(health.checks(1000.0)) == {"ping", "a"}


# The port


class Loop:
    """A loop that serves whenever there is something to do, as the supervisor's."""

    def __init__(self) -> None:
        self.healthz = Healthz("127.0.0.1", 0, Sources(lambda: FINE, lambda: self.configuration))
        self.configuration = '{"maxPods":20}'
        self.healthz.listen(1.0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.001):
            self.healthz.serve()

    def get(self, target: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.healthz.port, timeout=30)
        try:
            connection.request("GET", target)
            found = connection.getresponse()
            return found.status, found.read().decode()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.healthz.port), timeout=30)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.healthz.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    one = Loop()
    yield one
    one.close()


def test_port_answers(loop: Loop) -> None:
    assert loop.get("/healthz") == (200, "ok")
    assert loop.get("/healthz?verbose")[1].endswith("healthz check passed\n")


def test_long_configuration_is_sent_whole(loop: Loop) -> None:
    assert loop.get("/configz") == (200, '{"kubeletconfig":{"maxPods":20}}')
    loop.configuration = json.dumps("x" * 20_000_000)
    assert len(loop.get("/configz")[1]) > 20_000_000


def test_silent_clients_are_closed_for_new_ones(loop: Loop) -> None:
    silent = [loop.connect() for _ in range(CONNECTIONS + 3)]
    assert loop.get("/healthz") == (200, "ok")
    assert silent[0].recv(1) == b""
    for connection in silent:
        connection.close()


def test_request_in_pieces_is_answered_and_a_long_one_closed(loop: Loop) -> None:
    with loop.connect() as slow:
        for piece in (b"GET /hea", b"lthz HTTP/1.1\r", b"\n\r\n"):
            slow.sendall(piece)
        assert slow.recv(4096).startswith(b"HTTP/1.1 200 OK")
    with loop.connect() as long:
        long.sendall(b"GET /" + b"x" * REQUEST_BYTES)
        assert long.recv(4096).startswith(b"HTTP/1.1 400")


class Full:
    """A listener of a process without a free descriptor."""

    def __init__(self, listener: socket.socket, number: int) -> None:
        self.listener, self.number = listener, number
        self.accepts = 0

    def fileno(self) -> int:
        return self.listener.fileno()

    def setblocking(self, flag: bool) -> None:
        self.listener.setblocking(flag)

    def accept(self) -> None:
        self.accepts += 1
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_port_pauses_without_a_descriptor(number: int, caplog: pytest.LogCaptureFixture) -> None:
    healthz = Healthz("127.0.0.1", 0, Sources(lambda: FINE))
    healthz.listen(1.0)
    listener = healthz._listener
    assert listener is not None
    full: Any = Full(listener, number)
    with socket.create_connection(("127.0.0.1", healthz.port), timeout=5) as waiting:
        waiting.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert select.select([healthz.fd], [], [], 5)[0]
        healthz._listener = full
        for _ in range(3):
            before = time.monotonic()
            healthz.serve()
            assert before + PAUSE_S <= healthz.retry_at <= time.monotonic() + PAUSE_S
            assert select.select([healthz.fd], [], [], 0)[0] == [], "the loop would spin"
            healthz.listen(healthz.retry_at)
            assert healthz.retry_at == math.inf
        assert full.accepts == 3
        assert caplog.text.count("cannot accept a connection of healthz on 127.0.0.1 port") == 1
        healthz._listener = listener
        wait_for(lambda: healthz.serve() or select.select([waiting], [], [], 0)[0], what="the answer")
        assert waiting.recv(4096).endswith(b"\r\n\r\nok")
    healthz.close()


@pytest.mark.needs("IPv6")
@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_wildcard_address_answers_clients_of_both_families(address: str) -> None:
    healthz = Healthz(address, 0, Sources(lambda: FINE))
    healthz.listen(1.0)
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, healthz.port), timeout=5) as connected:
            connected.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_for(lambda: healthz.serve() or select.select([connected], [], [], 0)[0], what="the answer")
            assert connected.recv(4096).endswith(b"\r\n\r\nok")
    healthz.close()


def test_port_in_use_is_logged_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()  # which no connection takes before a listener does
    with socket.create_server(("127.0.0.1", port)):
        healthz = Healthz("127.0.0.1", port, Sources(lambda: FINE))
        healthz.listen(1.0)
        healthz.listen(6.0)
        assert healthz.retry_at == 11.0
    assert caplog.text.count(f"cannot serve healthz on 127.0.0.1 port {port}: Address already in use") == 1
    healthz.listen(11.0)
    assert healthz.port == port
    healthz.close()
