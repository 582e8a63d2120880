"""WebSocket clients of version 5 of the remote command protocol, by a runtime that knows SPDY alone."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors._net import client_watchdog
from actors._net.streaming.spdy import Session
from actors.server.streaming import bridge
from tests.harness import Stalls
from tests.server.routes.here import Here
from tests.server.site import until
from tests.server.streaming.spdy_runtime import SUCCESS, Peer, status
from tests.server.streaming.websockets import ON_TERMINAL, V5, configure, frame, has, open_session, runtime

ALL = ["error", "stdin", "stdout", "stderr"]


# Exec and attach


def echo(peer: Peer) -> None:
    """Behaves like `cat`, with a word on stderr and exit code 7."""
    assert has(peer, ALL)
    peer.say("stderr", b"began\n")
    assert peer.until(lambda: "stdin" in peer.ended)
    peer.say("stdout", peer.came["stdin"], end=True)
    peer.say("stderr", b"", end=True)
    peer.finish(status(7))


def test_channels_map_to_streams_and_end_with_them(here: Here) -> None:
    data = os.urandom(3_000_000)
    with runtime(here, echo) as served:
        session = open_session(here)
        assert f"Sec-WebSocket-Protocol: {V5}\r\n" in session.head
        session.send("stdin", data)
        session.raw(bytes((255, 0)))
        session.send("stdin", b"after its end")
        said = session.finish()
    assert session.whole[0] == b"\x01", "an empty message says that it has begun"
    assert (said["stdout"], said["stderr"]) == (data, b"began\n")
    assert json.loads(said["error"]) == status(7)
    assert session.code == 1000
    assert 255 not in said, "client-go complains of it"
    (head,) = served.heads
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /exec/token HTTP/1.1"
    assert b"Upgrade: SPDY/3.1" in lines
    versions = [f"X-Stream-Protocol-Version: {v}channel.k8s.io".encode() for v in ("v4.", "v3.", "v2.", "")]
    assert [line for line in lines if line.startswith(b"X-")] == versions
    assert not any(line.lower().startswith((b"sec-websocket", b"authorization")) for line in lines)
    assert here.runtime.calls[-1] == (
        "exec", "id-one", ["x"], {"stdin": True, "stdout": True, "stderr": True, "tty": False},
    )  # fmt: skip


def test_a_terminal_has_one_output_and_its_sizes_arrive_whole(here: Here) -> None:
    sizes = [json.dumps({"Width": width, "Height": 24}).encode() for width in (80, 120, 200)]

    def act(peer: Peer) -> None:
        assert has(peer, ["error", "stdin", "stdout", "resize"])
        assert peer.until(lambda: "resize" in peer.ended)
        assert [content for kind, content in peer.frames if kind == "resize"] == sizes
        peer.say("stdout", b"sized")
        peer.finish()

    with runtime(here, act):
        session = open_session(here, ON_TERMINAL)
        for size in sizes:
            session.send("resize", size)
        session.raw(bytes((255, 4)))
        said = session.finish()
    assert (said["stdout"], json.loads(said["error"])) == (b"sized", SUCCESS)


def test_attach_has_the_streams_that_its_container_has(here: Here) -> None:
    def act(peer: Peer) -> None:
        assert has(peer, ["error", "stdout", "stderr"])
        peer.say("stdout", b"its own")
        peer.finish()

    with runtime(here, act):
        session = open_session(here, "/attach/ns/one/c?output=1&error=1")
        session.send("stdin", b"that nobody asked for")
        session.raw(bytes((255, 0)))
        assert session.finish()["stdout"] == b"its own"


@pytest.mark.parametrize(
    ("version", "told", "wanted"),
    [
        ("v4.channel.k8s.io", json.dumps(SUCCESS).encode(), SUCCESS),
        ("v4.channel.k8s.io", b"no json", {"status": "Failure", "reason": "InternalError"}),
        ("v4.channel.k8s.io", b"[]", {"status": "Failure", "reason": "InternalError"}),
        ("v3.channel.k8s.io", b"", SUCCESS),
        ("v2.channel.k8s.io", b"exit status 7", {"status": "Failure", "reason": "InternalError"}),
        ("channel.k8s.io", b"", SUCCESS),
        ("", b"it failed", {"status": "Failure", "message": "Internal error occurred: it failed"}),
    ],
)
def test_the_outcome_is_a_status_whatever_the_runtimes_version(
    here: Here, version: str, told: bytes, wanted: dict[str, object]
) -> None:
    kinds = ["error", "stdin", "stdout", *(["resize"] if version[:2] in ("v4", "v3") else [])]

    def act(peer: Peer) -> None:
        assert has(peer, kinds)
        peer.say("stdout", b"", end=True)
        peer.finish(told)

    with runtime(here, act, version=version):
        found = json.loads(open_session(here, ON_TERMINAL).finish()["error"])
    assert wanted.items() <= found.items()


def test_input_waits_until_the_streams_are_accepted(here: Here) -> None:
    def act(peer: Peer) -> None:
        peer.accepts = False
        assert has(peer, ALL)
        peer.socket.settimeout(0.3)
        peer.turn()
        assert peer.gone, "nothing more has come"
        assert not peer.came
        peer.socket.settimeout(20)
        peer.gone = False
        for number in peer.streams.values():
            peer.accept(number)
        assert peer.until(lambda: "stdin" in peer.ended)
        peer.say("stdout", peer.came["stdin"])
        peer.finish()

    with runtime(here, act):
        early = frame(0x2, b"\x00with the request ") + frame(0x2, b"\x00and after") + frame(0x2, bytes((255, 0)))
        assert open_session(here, early=early).finish()["stdout"] == b"with the request and after"


def test_fragments_of_a_message_are_one_message(here: Here) -> None:
    def act(peer: Peer) -> None:
        assert peer.until(lambda: peer.ended >= {"stdin", "resize"})
        assert peer.came["resize"] == b'{"Width": 80, "Height": 24}'
        peer.say("stdout", peer.came["stdin"])
        peer.finish()

    with runtime(here, act):
        session = open_session(here, ON_TERMINAL)
        for parts in ((b"", b"\x00a", b"", b"b"), (b"\x04", b'{"Width": 80, ', b'"Height": 24}'), (b"\xff", b"\x00")):
            for number, part in enumerate(parts):
                opcode = 0x0 if number else 0x2
                session.socket.sendall(frame(opcode, part, final=number == len(parts) - 1))
                time.sleep(0.01)
        session.socket.sendall(frame(0x1, b"\x00 as text"))
        session.raw(bytes((255, 4)))
        assert session.finish()["stdout"] == b"ab"


def test_a_frame_of_16_mb_comes_through(here: Here) -> None:
    data = os.urandom(0xFFFFFF)

    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        peer.say("stdout", data)
        peer.finish()

    with runtime(here, act):
        session = open_session(here)
        said = session.finish()
    assert said["stdout"] == data
    assert max(map(len, session.whole)) <= 300_000


# Back pressure


def test_output_is_read_while_the_runtime_takes_no_input(here: Here) -> None:
    """The runtime's ping among it: an answer that cannot be sent for now holds up no output."""
    let = threading.Event()

    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        assert let.wait(20)
        peer.send(struct.pack(">III", 0x80030006, 4, 2))
        peer.say("stdout", b"x" * 1_000_000)
        assert peer.until(lambda: len(peer.came["stdin"]) == sent[0])
        peer.finish()

    sent = [0]
    with runtime(here, act, buffer=65536):
        session = open_session(here)
        session.socket.settimeout(0.5)
        message = frame(0x2, b"\x00" + b"i" * 65535)
        left = b""
        try:
            while sent[0] < 100_000_000:
                left = message
                while left:
                    left = left[session.socket.send(left) :]
                sent[0] += 65535
        except TimeoutError:
            sent[0] += 65535
        assert sent[0] < 30_000_000, "what the kernel holds on the way, and a block"
        let.set()
        session.socket.settimeout(20)
        session.wait(lambda: len(session.said["stdout"]) == 1_000_000)
        session.socket.sendall(left)
        assert json.loads(session.finish()["error"]) == SUCCESS


def test_no_output_is_lost_when_the_client_reads_slowly(here: Here) -> None:
    data = os.urandom(1_000_000)
    written, stalled = [0], threading.Event()

    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        peer.socket.settimeout(0.5)
        for _ in range(100):
            left = Session.data(peer.streams["stdout"], data)
            while left:
                try:
                    left = left[peer.socket.send(left) :]
                except TimeoutError:
                    stalled.set()
            written[0] += len(data)
        peer.socket.settimeout(20)
        peer.finish(status(3))
        assert not peer.until(lambda: False)

    with runtime(here, act) as served:
        session = open_session(here, receive_buffer=65536)
        assert stalled.wait(20)
        assert written[0] < 30_000_000
        session.send("stdin", b"to nobody" * 10_000)
        session.wait(lambda: len(session.said["stdout"]) > 99_000_000)
        assert served.done.wait(20)
        with suppress(OSError):  # unread bytes at the end would reset the connection
            session.socket.sendall(frame(0x2, b"\x00" + b"to nobody" * 10_000))
        said = session.finish()
    assert len(said["stdout"]) == 100_000_000
    assert said["stdout"] == data * 100
    assert json.loads(said["error"]) == status(3)


# Ends


@pytest.mark.parametrize("how", ["hang up", "close frame", "reset"])
def test_the_runtimes_connection_ends_with_the_client(here: Here, how: str) -> None:
    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        peer.say("stdout", b"up")
        assert not peer.until(lambda: False)

    with runtime(here, act) as served:
        session = open_session(here)
        session.wait(lambda: session.said["stdout"] == b"up")
        if how == "close frame":
            session.socket.sendall(frame(0x8, struct.pack(">H", 1000)))
            session.wait(lambda: session.over)
            assert session.code == 1000
        elif how == "reset":
            session.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        session.close()
        assert served.done.wait(20)


def test_client_reset_is_noticed_while_input_is_blocked(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_watchdog, "LOOK_S", 0.05)
    gone = threading.Event()

    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        assert gone.wait(20)
        until(lambda: state_of(peer.socket) != 1)

    with runtime(here, act, buffer=65536) as served:
        session = open_session(here)
        session.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            session.send("stdin", b"x" * 100_000_000)
        session.close()
        gone.set()
        assert served.done.wait(20)


def state_of(connected: socket.socket) -> int:
    """1 is established: linux/tcp_states.h."""
    return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


@pytest.mark.parametrize("when", ["at once", "with output", "in the middle of a frame", "with a reset", "garbage"])
def test_aborted_runtime_connection_is_a_failure(here: Here, when: str) -> None:
    def act(peer: Peer) -> None:
        if when == "at once":
            return
        assert has(peer, ALL)
        peer.say("stdout", b"some")
        if when == "in the middle of a frame":
            peer.send(struct.pack(">II", peer.streams["stdout"], 100) + b"x")
        elif when == "with a reset":
            for number in peer.streams.values():
                peer.send(Session.reset(number))
        elif when == "garbage":
            peer.send(b"\xff" * 100)

    with runtime(here, act):
        session = open_session(here)
        said = session.finish()
    found = json.loads(said["error"])
    assert (found["status"], found["reason"], session.code) == ("Failure", "InternalError", 1000)


def test_output_arrives_when_the_runtime_closes_within_its_input(here: Here) -> None:
    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        assert peer.until(lambda: bool(peer.came["stdin"]))
        peer.say("stdout", b"enough")
        peer.finish(status(7))

    with runtime(here, act):
        session = open_session(here)

        def send() -> None:
            try:
                for _ in range(300):
                    session.socket.sendall(frame(0x2, b"\x00" + b"x" * 65535))
            except OSError:
                pass

        sender = threading.Thread(target=send)
        sender.start()
        said = session.finish()
        sender.join()
    assert (said["stdout"], json.loads(said["error"])) == (b"enough", status(7))


def test_pings_are_answered_and_go_on(here: Here) -> None:
    answered = threading.Event()

    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        peer.say("stdout", b"up")
        assert peer.until(lambda: peer.pings == 1)
        assert answered.wait(20)  # the second ping may come after this end of the first
        peer.finish()
        assert not peer.until(lambda: False)

    with runtime(here, act):
        session = open_session(here)
        session.wait(lambda: session.said["stdout"] == b"up")
        session.ping(b"one")
        session.ping(b"two")
        session.wait(lambda: session.pongs == [b"one", b"two"])
        answered.set()
        assert json.loads(session.finish()["error"]) == SUCCESS


def test_idle_session_is_ended_and_pings_keep_it_open(here: Here) -> None:
    configure(here, streaming_idle_timeout_s=2.0)  # longer than a machine may stand still

    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        assert not peer.until(lambda: False)

    with runtime(here, act) as served:
        session = open_session(here)
        with Stalls() as machine:
            for _ in range(12):
                time.sleep(0.25)
                with suppress(OSError):  # it may be over on a machine that stood still
                    session.ping()
        assert not served.done.is_set() or machine.longest_s > 1.0
        session.wait(lambda: session.over)
        assert served.done.wait(20)


# Faults of clients


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(0x2, b"\x00x", masked=False), 1002),
        (frame(0x9, b"x" * 126), 1002),
        (frame(0x8, b"x" * 126), 1002),
        (frame(0x9, b"", final=False), 1002),
        (frame(0x3, b"x"), 1002),
        (frame(0x0, b"x"), 1002),
        (b"\xf2" + frame(0x2, b"x")[1:], 1002),
        (frame(0x1, b"\x00\xff\xfe"), 1007),
        (frame(0x2, b"\x05x"), 1008),
        (frame(0x2, b"\xfex"), 1008),
        (frame(0x2, b"\xff"), 1008),
        (frame(0x2, b"\xff\x05"), 1008),
        (frame(0x2, b"\xff\x00\x00"), 1008),
        (frame(0x2, b"\x04" + b"x" * 2_000_000), 1009),
        (frame(0x2, b"\xff" + b"x" * 2_000_000), 1009),
        (frame(0x8, b""), 1000),
        (frame(0x8, struct.pack(">H", 1006)), 1002),
    ],
)
def test_protocol_violation_ends_the_session_with_its_close_code(here: Here, sent: bytes, code: int) -> None:
    def act(peer: Peer) -> None:
        assert has(peer, ["error", "stdin", "stdout", "resize"])
        assert not peer.until(lambda: False)

    with runtime(here, act) as served:
        session = open_session(here, ON_TERMINAL)
        session.socket.sendall(sent)
        session.wait(lambda: session.over)
        assert session.code == code
        assert served.done.wait(20)


def test_violating_client_that_reads_nothing_is_cut_off(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "LEAVE_S", 0.2)
    full = threading.Event()

    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        peer.socket.settimeout(0.5)
        try:
            while True:
                peer.socket.sendall(Session.data(peer.streams["stdout"], b"x" * 65536))
        except TimeoutError:
            full.set()
        except OSError:
            return
        peer.socket.settimeout(20)
        assert not peer.until(lambda: False)

    with runtime(here, act) as served:
        session = open_session(here, receive_buffer=65536)
        assert full.wait(20)
        session.socket.sendall(frame(0x2, b"\x07?"))
        assert served.done.wait(20)
        session.close()


@given(st.lists(st.one_of(st.binary(max_size=300), st.builds(frame, st.integers(0, 15), st.binary(max_size=200)))))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_client_input_causes_no_internal_error(here: Here, sent: list[bytes]) -> None:
    def act(peer: Peer) -> None:
        peer.until(lambda: False)

    with runtime(here, act) as served:
        session = open_session(here, ON_TERMINAL)
        try:
            session.socket.sendall(b"".join(sent))
            session.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        session.wait(lambda: session.over)
        session.close()
        assert served.done.wait(20)


@given(st.binary(max_size=500))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_runtime_input_causes_no_internal_error(here: Here, sent: bytes) -> None:
    def act(peer: Peer) -> None:
        assert has(peer, ALL)
        peer.send(sent)

    with runtime(here, act):
        session = open_session(here)
        assert json.loads(session.finish()["error"])["status"] == "Failure"
