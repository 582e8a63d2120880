"""HTTP, TCP and gRPC probes by the actor, against real servers on loopback."""

import contextlib
import functools
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from actors._net.probing.connection import Connection, Wait
from proto.pods.probe import SetPods
from proto.v1 import GRPCAction, HTTPHeader, Probe
from tests.harness import ActorProcess, Stalls, actor_process, wait_for
from tests.ports import free_port
from tests.probe import pods, servers
from tests.probe.servers import Server
from tests.tls_records import send_key_updates


@pytest.fixture(scope="module")
def actor() -> Iterator[ActorProcess]:
    with actor_process("probe", peers=("pod_workers",)) as process:
        yield process


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.http_server() as running:
        yield running


def outcome(actor: ActorProcess, probe: Probe, **ports: int) -> str:
    """ "ready" when the probe succeeds, otherwise the message of its failure."""
    container = pods.container(readiness=probe, liveness=probe, ports=ports)
    actor.tell(SetPods(pods=(pods.pod(container),)))
    wait_for(
        lambda: (
            pods.told(actor, container.container_id, "readiness")
            or pods.told(actor, container.container_id, "liveness")
        )
    )
    if good := pods.told(actor, container.container_id, "readiness"):
        return good[0].message or "ready"
    return pods.told(actor, container.container_id, "liveness")[0].message


ENDLESS = ("/hang", "/drip")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/ok", "ready"),
        ("/status/204", "ready"),
        ("/status/304", r"Readiness probe warning: Probe terminated redirects, Response body: "),
        ("/status/399", r"Readiness probe warning: .*"),
        ("/status/400", "Liveness probe failed: HTTP probe failed with statuscode: 400"),
        ("/status/500", "Liveness probe failed: HTTP probe failed with statuscode: 500"),
        ("/redirect//ok", "ready"),
        ("/redirect//status/500", "Liveness probe failed: HTTP probe failed with statuscode: 500"),
        ("/elsewhere", r"Readiness probe warning: Probe terminated redirects, Response body: <a href>Found</"),
        ("/moved", r"Readiness probe warning: Probe terminated redirects, Response body: here"),
        (
            "/redirect/ftp://127.0.0.1/x",
            'Liveness probe failed: Get "ftp://127.0.0.1/x": unsupported protocol scheme "ftp"',
        ),
        (
            "/redirect/http://127.0.0.1:99999/x",
            'Liveness probe failed: Get "http://127.0.0.1:99999/x": dial tcp: address 99999: invalid port',
        ),
        (
            "/redirect/http://127.0.0.1:bad/x",
            r'Liveness .*: failed to parse Location header "http://127.0.0.1:bad/x": parse .*',
        ),
        ("/loop", r'Liveness probe failed: Get "\.\./loop\?a#b": stopped after 10 redirects'),
        ("/marked", r'Liveness probe failed: Get "http://127.0.0.1:\d+/close#a%20b": EOF'),
        (
            "/hang",
            r'Liveness .* Get "http://127.0.0.1:\d+/hang": context deadline exceeded \(Client.Timeout exceeded .*\)',
        ),
        ("/drip", r".*context deadline exceeded.*"),
        ("/garbage", r'.*malformed HTTP response "SSH-2.0-OpenSSH_9.2"'),
        ("/huge", "ready"),
        ("/chunked", "ready"),
        ("/interim", "ready"),
        ("/close", r'Liveness probe failed: Get "http://127.0.0.1:\d+/close": EOF'),
        ("/reset", r".*: (read: connection reset by peer|EOF)"),
        ("nothing-before-it", "ready"),
        ("/with space?a=b%20c", "ready"),
    ],
)
def test_http(actor: ActorProcess, server: Server, path: str, expected: str) -> None:
    location = {"/loop": b"../loop?a#b", "/marked": b"close#a%20b"}.get(path)
    if location is not None:
        server.answer = b"HTTP/1.1 307 Again\r\nLocation: %s\r\n\r\n" % location
    try:
        found = outcome(actor, pods.http(server.port, path, timeout=1 if path in ENDLESS else 5))
    finally:
        server.answer = servers.OK
    assert re.fullmatch(expected, found), found


def test_nine_redirects_are_followed(actor: ActorProcess) -> None:
    with servers.http_server() as running:
        running.answer = b"HTTP/1.1 307 Again\r\nLocation: /loop\r\n\r\n"
        container = pods.container(liveness=pods.http(running.port, "/loop"))
        actor.tell(SetPods(pods=(pods.pod(container),)))
        assert "stopped after 10 redirects" in pods.first_told(actor, container.container_id, "liveness").message
        assert len(running.requests) == 10


def test_redirect_is_followed_with_the_last_url_as_referer(actor: ActorProcess, server: Server) -> None:
    paths = ["/redirect//redirect//ok", "/redirect//ok", "/ok"]
    assert outcome(actor, pods.http(server.port, paths[0])) == "ready"
    sent = {head[0].split(" ")[1]: [line for line in head if line.startswith("Referer:")] for head in server.requests}
    urls = [f"Referer: http://127.0.0.1:{server.port}{path}" for path in paths]
    assert [sent[path] for path in paths] == [[], [urls[0]], [urls[1]]]


def test_timeout_ends_a_probe_in_time(actor: ActorProcess) -> None:
    """By the end of its connection: its result is told once it is on the disk, which may be slow."""
    with socket.create_server(("127.0.0.1", 0)) as silent, Stalls() as machine:
        container = pods.container(liveness=pods.http(silent.getsockname()[1], "/hang", timeout=2))
        began = time.monotonic()
        actor.tell(SetPods(pods=(pods.pod(container),)))
        with silent.accept()[0] as connection:
            while connection.recv(65536):
                pass
        took_s = time.monotonic() - began
    assert "deadline exceeded" in pods.first_told(actor, container.container_id, "liveness").message
    assert 1.9 < took_s < 2.5 + machine.longest_s


def test_truncated_body_does_not_change_the_result(actor: ActorProcess, server: Server) -> None:
    half = pods.http(server.port, "/half", timeout=3)  # its head comes in time, also on a busy machine
    container = pods.container(liveness=half, readiness=half)
    actor.tell(SetPods(pods=(pods.pod(container),)))
    # Three tries of each. Containers of other tests are probed, too.
    wait_for(lambda: sum(" /half " in head[0] for head in list(server.requests)) >= 6, 40)
    assert not pods.told(actor, container.container_id, "liveness")
    assert not pods.told(actor, container.container_id, "readiness")


def request_for(actor: ActorProcess, server: Server, probe: Probe) -> dict[str, str]:
    outcome(actor, probe)
    path = probe.http_get.path if probe.http_get else ""
    head = next(head for head in server.requests if f" {path} " in head[0])
    return {name: value for name, _, value in (line.partition(": ") for line in head[1:])}


def test_headers_are_the_kubelets_unless_given(actor: ActorProcess, server: Server) -> None:
    plain = request_for(actor, server, pods.http(server.port, "/headers-plain"))
    host = f"127.0.0.1:{server.port}"
    assert plain == {"Host": host, "User-Agent": "kube-probe/1.36", "Accept": "*/*", "Connection": "close"}
    given = tuple(
        HTTPHeader(name=name, value=value)
        for name, value in [("Host", "a.example"), ("user-agent", "me"), ("Accept", ""), ("X-Evil", "a\r\nX-More: b")]
    )
    headers = request_for(actor, server, pods.http(server.port, "/headers-given", http_headers=given))
    assert headers == {"Host": "a.example", "user-agent": "me", "X-Evil": "a X-More: b", "Connection": "close"}


def test_https_takes_any_certificate(actor: ActorProcess, tmp_path: Path) -> None:
    with servers.http_server(servers.self_signed(tmp_path)) as secure:
        assert outcome(actor, pods.http(secure.port, "/ok", scheme="HTTPS")) == "ready"
        assert outcome(actor, pods.http(secure.port, "/ok", scheme="HTTPS", host="localhost")) == "ready"
        assert "statuscode: 503" in outcome(actor, pods.http(secure.port, "/status/503", scheme="HTTPS"))


def test_https_to_a_server_without_it(actor: ActorProcess, server: Server) -> None:
    found = outcome(actor, pods.http(server.port, "/ok", scheme="HTTPS"))
    assert found.startswith('Liveness probe failed: Get "https://')


def test_ports_by_name_and_hosts_by_name(actor: ActorProcess, server: Server) -> None:
    assert outcome(actor, pods.http("web"), web=server.port) == "ready"
    assert outcome(actor, pods.http(str(server.port))) == "ready"
    assert outcome(actor, pods.tcp("web"), web=server.port) == "ready"
    assert outcome(actor, pods.tcp(server.port, host="localhost")) == "ready"
    assert "lookup nowhere.invalid" in outcome(actor, pods.http(server.port, host="nowhere.invalid", timeout=5))


def test_tcp(actor: ActorProcess, server: Server) -> None:
    assert outcome(actor, pods.tcp(server.port)) == "ready"
    port = free_port()
    assert (
        outcome(actor, pods.tcp(port))
        == f"Liveness probe failed: dial tcp 127.0.0.1:{port}: connect: connection refused"
    )
    with servers.silent_port() as port:
        assert outcome(actor, pods.tcp(port, timeout=1)) == (
            f"Liveness probe failed: dial tcp 127.0.0.1:{port}: i/o timeout"
        )


def test_grpc(actor: ActorProcess) -> None:
    with servers.grpc_server() as port:
        assert outcome(actor, pods.grpc_check(port)) == "ready"
        assert outcome(actor, pods.grpc_check(port, "good")) == "ready"
        assert outcome(actor, pods.grpc_check(port, "bad")) == (
            'Liveness probe failed: service unhealthy (responded with "NOT_SERVING")'
        )
        assert outcome(actor, pods.grpc_check(port, "slow", timeout=1)) == (
            "Liveness probe failed: timeout: health rpc did not complete within 1s"
        )
        assert "code = ResourceExhausted" in outcome(actor, pods.grpc_check(port, "huge"))
        assert "code = NotFound desc = unknown service" in outcome(actor, pods.grpc_check(port, "other"))
    with servers.grpc_server(health=False) as port:
        assert "does not implement the grpc health protocol" in outcome(actor, pods.grpc_check(port))


def test_grpc_connection_is_tried_until_the_timeout(actor: ActorProcess) -> None:
    port = free_port()
    assert outcome(actor, pods.grpc_check(port, timeout=1)) == (
        f'Liveness probe failed: timeout: failed to connect service "127.0.0.1:{port}" within 1s: '
        "context deadline exceeded"
    )
    with servers.silent_port() as port:
        assert f'failed to connect service "127.0.0.1:{port}" within 1s' in outcome(
            actor, pods.grpc_check(port, timeout=1)
        )


def test_grpc_server_that_comes_up_within_the_timeout_is_healthy(actor: ActorProcess) -> None:
    port = free_port()  # the kernel gives it to no connection before the server has it
    with socket.create_server(("127.0.0.1", port)) as early:
        once = pods.probe(grpc=GRPCAction(port=port), timeout_seconds=30, period_seconds=100)
        container = pods.container(readiness=once)
        actor.tell(SetPods(pods=(pods.pod(container),)))
        early.accept()[0].close()
    with servers.grpc_server(port=port):
        assert pods.first_told(actor, container.container_id, "readiness", 20).result == "success"


def test_no_socket_is_left_open(actor: ActorProcess) -> None:
    actor.tell(SetPods(pods=(), full=True))
    wait_for(lambda: pods.state(actor)["sockets"] == 0)
    wait_for(lambda: not psutil.Process(actor.pid).net_connections("tcp"))


@contextlib.contextmanager
def secured(tmp_path: Path) -> Iterator[tuple[ssl.SSLSocket, Connection]]:
    """A server's and a probe's end after the handshake."""
    context = servers.self_signed(tmp_path)
    context.num_tickets = 0
    context.keylog_filename = str(tmp_path / "keys")
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        probe = Connection(*listener.getsockname())
        stack.callback(probe.close)
        there = stack.enter_context(
            context.wrap_socket(within(probe, probe.connect, listener.accept)[0], True, do_handshake_on_connect=False)
        )
        there.settimeout(20)
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(there.do_handshake)
            within(probe, functools.partial(probe.secure, "localhost"))
            done.result()
        yield there, probe


def within(probe: Connection, step: Callable[[], object], after: Callable[[], Any] = lambda: None) -> Any:
    """Repeat a probe's step until it need not wait, at most 20 s for each wait."""
    while True:
        try:
            step()
        except Wait as wait:
            poll = select.poll()
            poll.register(probe.fileno(), wait.event)
            assert poll.poll(20_000)
        else:
            return after()


def test_probe_takes_key_updates_in_bounded_steps(tmp_path: Path) -> None:
    """A server could send them without end, so that the actor's other probes wait for that one read."""
    with secured(tmp_path) as (there, probe):
        send_key_updates(there, tmp_path / "keys", 2000, b"data", sequence=0)
        waits, received = 0, b""
        while not received:
            try:
                received = probe.receive()
            except Wait:
                waits += 1
        assert received == b"data"
        assert waits >= 2
