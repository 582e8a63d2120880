"""Upgrades: sessions that are translated, unpacked, proxied or refused; and port-forward in a tunnel."""

from __future__ import annotations

import os
import struct

import pytest

from actors._metrics.kubelet import WEBSOCKET_STREAMS
from actors.server.streaming import upstream
from tests.server.routes.here import UPGRADE, Here
from tests.server.site import client, say, status_of
from tests.server.streaming.spdy_runtime import Peer
from tests.server.streaming.websockets import EXEC, TUNNEL, V5, configure, frame, has, open_session, runtime, websocket

# Before there is a session


@pytest.mark.parametrize("target", [EXEC, "/attach/ns/one/c?output=1", "/portForward/ns/one"])
def test_runtimes_refusal_is_the_clients_answer(here: Here, target: str) -> None:
    no = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 12\r\n\r\nunable to x\n"
    with runtime(here, lambda _: None, answer=no):
        protocol = TUNNEL if "port" in target else V5
        assert here.say("GET", target, websocket(protocol)) == (403, b"unable to x\n")


@pytest.mark.parametrize(
    ("method", "head", "status"),
    [
        ("POST", websocket(V5), 405),
        ("GET", websocket(V5, **{"Sec-WebSocket-Version": "8"}), 400),
        ("GET", websocket(V5, **{"Sec-WebSocket-Version": ""}), 400),
        ("GET", websocket(V5, **{"Sec-WebSocket-Key": ""}), 400),
    ],
)
@pytest.mark.parametrize("target", [EXEC, "/portForward/ns/one"])
def test_invalid_handshake_is_refused_without_asking_the_runtime(
    here: Here, method: str, head: str, status: int, target: str
) -> None:
    head = head.replace(V5, TUNNEL) if "port" in target else head
    assert here.say(method, target, head)[0] == status
    assert not here.runtime.calls


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Yes\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v9\r\n\r\n",
    ],
)
def test_a_runtime_that_agrees_to_something_else_is_an_error(here: Here, answer: bytes) -> None:
    with runtime(here, lambda _: None, answer=answer):
        assert here.say("GET", EXEC, websocket(V5))[0] == 500


@pytest.mark.parametrize(
    ("gate", "target", "head"),
    [
        (False, EXEC, websocket(V5)),
        (False, "/portForward/ns/one", websocket(TUNNEL)),
        (True, EXEC, websocket("v4.channel.k8s.io")),
        (True, EXEC, websocket("")),
        (True, EXEC, UPGRADE + "X-Stream-Protocol-Version: v5.channel.k8s.io\r\n"),
        (True, "/portForward/ns/one?port=80", websocket("v4.channel.k8s.io")),
        (True, "/portForward/ns/one", UPGRADE),
    ],
)
def test_other_requests_are_proxied_unchanged(here: Here, gate: bool, target: str, head: str) -> None:
    configure(here, extend_websockets_to_kubelet=gate)
    yes = b"HTTP/1.1 101 Yes\r\nUpgrade: as-asked\r\n\r\nits own bytes"
    with runtime(here, lambda _: None, answer=yes) as served:
        request = f"GET {target} HTTP/1.1\r\nHost: node\r\n{head}\r\n".encode()
        assert say(here.site.plain, request) == yes
        assert served.heads[0].split(b"\r\n", 2)[2] == head.rstrip().encode()


# Port-forward


def reverse(peer: Peer) -> None:
    """Bytes that are SPDY to client and runtime alone: these are told backwards."""
    received = b""
    while len(received) < 2_000_000:
        received += peer.socket.recv(65536)
    peer.send(received[::-1])


def test_a_tunnel_carries_the_bytes_of_the_runtimes_connection(here: Here) -> None:
    data = os.urandom(2_000_000)
    with runtime(here, reverse, version="portforward.k8s.io") as served:
        session = open_session(here, "/portForward/ns/one?port=ignored", TUNNEL)
        assert f"Sec-WebSocket-Protocol: {TUNNEL}\r\n" in session.head
        for at in range(0, len(data), 100_000):
            session.raw(data[at : at + 100_000])
        session.ping(b"there?")
        session.finish()
    assert b"".join(session.whole) == data[::-1]
    assert (session.code, session.pongs) == (1000, [b"there?"])
    lines = served.heads[0].split(b"\r\n")
    assert lines[0].startswith(b"POST ")
    assert b"X-Stream-Protocol-Version: portforward.k8s.io" in lines
    assert here.runtime.calls[-1] == ("port_forward", "box", [])


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(0x1, b"text"), 1003),
        (frame(0x2, b"x", masked=False), 1002),
        (frame(0x9, b"x" * 126), 1002),
        (frame(0x8, struct.pack(">H", 1000)), 1000),
    ],
)
def test_tunnel_violation_closes_the_client_and_the_runtime(here: Here, sent: bytes, code: int) -> None:
    def act(peer: Peer) -> None:
        while peer.socket.recv(1000):
            pass

    with runtime(here, act, version="portforward.k8s.io") as served:
        session = open_session(here, "/portForward/ns/one", TUNNEL)
        session.raw(b"before")
        session.socket.sendall(sent)
        session.wait(lambda: session.over)
        assert session.code == code
        assert served.done.wait(20)


def test_tunnel_of_another_protocol_is_passed_to_the_runtime(here: Here) -> None:
    no = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n"
    with runtime(here, lambda _: None, answer=no) as served:
        assert here.say("GET", "/portForward/ns/one", websocket("SPDY/3.1+v9.k8s.io"))[0] == 403
    assert b"X-Stream-Protocol-Version: v9.k8s.io" in served.heads[0]


def test_accept_key_matches_the_example_of_rfc_6455(here: Here) -> None:
    with runtime(here, lambda _: None), client(here.site.plain) as connected:
        connected.sendall(f"GET {EXEC} HTTP/1.1\r\nHost: node\r\n{websocket(V5)}\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connected.recv(1000)
    assert status_of(answer) == 101
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer


def test_websocket_sessions_served_here_are_counted(here: Here) -> None:
    def counted() -> dict[str, float]:
        return {labels[0]: numbers[0] for labels, numbers in WEBSOCKET_STREAMS.samples.items()}

    def act(peer: Peer) -> None:
        assert has(peer, ["error", "stdout"])
        peer.finish()

    WEBSOCKET_STREAMS.replace(())
    for target in ("/exec/ns/one/c?command=x&output=1", "/attach/ns/one/c?output=1"):
        with runtime(here, act):
            open_session(here, target).finish()
    with runtime(here, reverse, version="portforward.k8s.io"):
        session = open_session(here, "/portForward/ns/one", TUNNEL)
        session.raw(bytes(2_000_000))
        session.finish()
    assert counted() == {"exec": 1, "attach": 1, "portforward": 1}
    here.runtime.url = "http://127.0.0.1:1/x"
    assert here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE)[0] == 500, "handed through, if it could be"
    assert counted() == {"exec": 1, "attach": 1, "portforward": 1}


class _Endless:
    """A runtime whose refusal never ends."""

    def __init__(self) -> None:
        self.blocks = 0

    async def read(self, size: int) -> bytes:
        self.blocks += 1
        return b"HTTP/1.1 500 No\r\n\r\n" if self.blocks == 1 else b"x" * size


def test_endless_refusal_is_not_read_to_its_end() -> None:
    runtime = _Endless()
    reading = upstream._answer_of(runtime)  # type: ignore[arg-type]
    with pytest.raises(ConnectionAbortedError, match="longer than"):
        reading.send(None)
    assert runtime.blocks < 50
