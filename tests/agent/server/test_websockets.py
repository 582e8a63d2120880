"""WebSocket clients of version 5, and port-forward in a tunnel, at an agent's own port: as API servers send them on."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from actors._net.streaming.spdy import Accepted, Data, Session
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.agent.agent import SLEEP, Agent, container, is_ready, pod, state
from tests.agent.embedded import embedded_agent
from tests.containerd import ContainerdInstance
from tests.harness import wait_for
from tests.runtime.streaming.clients import WebSocketSession

pytestmark = pytest.mark.timeout(300)

V5 = "v5.channel.k8s.io"
TUNNEL = "SPDY/3.1+portforward.k8s.io"


class Site(NamedTuple):
    """An agent without authorization."""

    agent: Agent
    port: int

    def session(self, path: str, protocol: str = V5, **query: Any) -> WebSocketSession:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        return WebSocketSession(f"https://127.0.0.1:{self.port}{path}?{urlencode(query, doseq=True)}", protocol, tls)

    def exec(self, *command: str, tty: bool = False) -> WebSocketSession:
        streams = {"input": 1, "output": 1, **({"tty": 1} if tty else {"error": 1})}
        return self.session("/exec/default/tool-vm/c", command=command, **streams)

    def create(self, name: str, *containers: dict[str, Any], **spec: Any) -> None:
        self.agent.write(name, pod(name, *containers, **spec))
        wait_for(lambda: is_ready(self.agent.pod(name)), 60, f"{name} ready; log: {self.agent.log}")


def takes_connections(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def started(kind: str, flags: tuple[str, ...], containerd: ContainerdInstance) -> Iterator[Agent]:
    if kind == "embedded":
        with embedded_agent(*flags) as agent:
            yield agent
        return
    with closing(Agent(containerd)) as agent:
        agent.start(*flags)
        yield agent


@pytest.fixture(scope="module", params=["containerd", "embedded"])
def served(request: pytest.FixtureRequest, containerd: ContainerdInstance) -> Iterator[Site]:
    flags = (
        "--anonymous-auth=true", "--authentication-token-webhook=false", "--authorization-mode=AlwaysAllow",
        "--address=127.0.0.1",
    )  # fmt: skip
    with started(request.param, flags, containerd) as agent:
        site = Site(agent, agent.port)
        site.create("tool", container("c"))
        # The actor may be ready some seconds earlier: it signs its certificate, then opens the port.
        wait_for(lambda: takes_connections(site.port), 60, f"the secure port is open; log: {agent.log}")
        yield site


def test_an_input_up_to_its_end_and_an_exit_code(served: Site) -> None:
    session = served.exec("sh", "-c", "cat; echo err >&2; exit 7")
    session.send("stdin", b"one\ntwo\n")
    session.raw(bytes((255, 0)))
    said = session.finish()
    assert (said["stdout"], said["stderr"]) == (b"one\ntwo\n", b"err\n")
    assert exit_code_of(said["error"]) == 7
    assert session.code == 1000
    assert exit_code_of(served.exec("true").finish()["error"]) == 0


def test_a_command_that_is_not_there_is_a_failure(served: Site) -> None:
    told = json.loads(served.exec("/no/such").finish()["error"])
    assert (told["status"], told["reason"]) == ("Failure", "InternalError")


def test_100_mb_through_cat_are_the_same(served: Site) -> None:
    data = os.urandom(1_000_000) * 100
    began = time.monotonic()
    session = served.exec("cat")
    session.carry("stdin", data)
    said = session.finish()
    print(f"100 MB in and out by WebSocket version 5: {time.monotonic() - began:.1f} s")
    assert hashlib.sha256(said["stdout"]).digest() == hashlib.sha256(data).digest()
    assert exit_code_of(said["error"]) == 0


def test_a_terminal_has_a_size_that_changes(served: Site) -> None:
    session = served.exec("sh", tty=True)
    for width, height in ((99, 33), (122, 44)):
        session.send("resize", json.dumps({"Width": width, "Height": height}).encode())
        wanted = f"{height} {width}".encode()
        deadline = time.monotonic() + 30
        while wanted not in session.said["stdout"] and time.monotonic() < deadline:
            before = len(session.said["stdout"])
            session.send("stdin", b"stty size; echo do''ne\n")
            session.wait(lambda before=before: b"done" in session.said["stdout"][before:])
        assert wanted in session.said["stdout"]
    session.send("stdin", b"exit 5\n")
    assert exit_code_of(session.finish()["error"]) == 5


def test_attach_reaches_the_containers_own_streams(served: Site) -> None:
    script = "while read line; do echo got $line; done; echo at its end"
    served.agent.write(
        "listener", pod("listener", container("c", script, stdin=True, stdinOnce=True), restartPolicy="Never")
    )
    wait_for(lambda: state(served.agent.pod("listener"), "c").get("running"), 60, "the listener")
    session = served.session("/attach/default/listener-vm/c", input=1, output=1, error=1)
    session.send("stdin", b"one\ntwo\n")
    session.raw(bytes((255, 0)))
    said = session.finish()
    assert said["stdout"] == b"got one\ngot two\nat its end\n"
    assert exit_code_of(said["error"]) == 0


def test_a_command_ends_with_its_client(served: Site) -> None:
    def there() -> bool:
        session = served.exec("sh", "-c", "ps -o args | grep -c '[s]h -c cat; : 4711'")
        return session.finish()["stdout"].strip() != b"0"

    session = served.exec("sh", "-c", "cat; : 4711")
    session.send("stdin", b"up")
    session.wait(lambda: session.said["stdout"] == b"up")
    assert there()
    session.close()
    wait_for(lambda: not there(), 60, "it has ended")


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"hello {self.path}".encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


def test_ports_are_forwarded_through_a_tunnel(served: Site, web: int) -> None:
    served.create("forwarded", container("c", SLEEP), hostNetwork=True)
    session, spdy = served.session("/portForward/default/forwarded-vm", TUNNEL), Session()
    assert f"Sec-WebSocket-Protocol: {TUNNEL}" in session.head
    streams: dict[int, int] = {}
    for number in range(20):
        headers = {"port": str(web), "requestid": str(number)}
        error, frame = spdy.open({"streamtype": "error", **headers})
        session.raw(frame + spdy.data(error, b"", end=True))
        data, frame = spdy.open({"streamtype": "data", **headers})
        streams[data] = number
        session.raw(frame)
    said = dict.fromkeys(streams, b"")
    accepted: set[int] = set()
    ended: set[int] = set()

    def take() -> None:
        for message in session.whole:
            for event in spdy.feed(message):
                if isinstance(event, Accepted):
                    accepted.add(event.stream)
                elif isinstance(event, Data) and event.stream in said:
                    said[event.stream] += event.content
                    ended.update({event.stream} if event.end else ())
        session.whole.clear()

    def have(found: set[int]) -> bool:
        take()
        return found >= streams.keys()

    session.wait(lambda: have(accepted))
    for stream, number in streams.items():
        session.raw(spdy.data(stream, f"GET /{number} HTTP/1.0\r\n\r\n".encode()))
    session.wait(lambda: have(ended))
    assert all(said[stream].endswith(f"hello /{number}".encode()) for stream, number in streams.items())
    session.close()
