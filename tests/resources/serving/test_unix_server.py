"""gRPC behind the proxy: calls are served, and clients that hold a connection without calls are not."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from actors.resources.device_registration import REGISTRATION
from actors.resources.serving.unix_server import Limits, Service, serve
from proto.plugins import deviceplugin_pb2 as pb
from tests.harness import wait_for

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
IDLE_S = 0.5


@pytest.fixture
def may_answer() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@pytest.fixture
def path(tmp_path: Path, may_answer: threading.Event) -> Iterator[Path]:
    def answer(_: pb.RegisterRequest) -> pb.Empty:
        assert may_answer.wait(20)
        return pb.Empty()

    services = [Service(REGISTRATION, {"Register": answer})]
    limits = Limits(connections=4, idle_s=IDLE_S)
    proxy = serve(str(tmp_path / "front.sock"), str(tmp_path / "behind.sock"), services, limits)
    yield tmp_path / "front.sock"
    proxy.stop()


def register(path: Path) -> grpc.StatusCode:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        try:
            channel.unary_unary("/v1beta1.Registration/Register")(b"", timeout=5)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """No thread of a server can be started; the names of the refused threads."""
    start, refused = threading.Thread.start, list[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("rpc"):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    yield refused
    monkeypatch.undo()


def test_a_server_without_a_thread_starts_with_a_later_client(
    path: Path, no_thread: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert register(path) is grpc.StatusCode.UNAVAILABLE
    assert no_thread
    monkeypatch.undo()
    wait_for(lambda: register(path) is grpc.StatusCode.OK, 20, "the server has a thread")


def test_a_server_whose_serving_thread_cannot_start_holds_up_nothing(tmp_path: Path) -> None:
    """In a process of its own: gRPC's deallocation of such a server holds the interpreter's lock for ever."""
    script = (
        "import sys, threading; from actors.resources.serving import unix_server\n"
        "start = threading.Thread.start\n"
        "def refuse(thread):\n"
        "    if getattr(thread._target, '__name__', '') == '_serve': raise RuntimeError('no thread')\n"
        "    start(thread)\n"
        "threading.Thread.start = refuse\n"
        "try: unix_server._start(sys.argv[1], [], unix_server.Limits())\n"
        "except OSError as error: print(error, flush=True)\n"
        "print('went on', flush=True)\n"
        "import os; os._exit(0)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "socket")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "no thread" in said
    assert said.endswith("went on\n")


def test_failed_starts_of_a_server_leave_nothing(tmp_path: Path) -> None:
    """Each client tries again: what a try left would add to the lack of threads that it met."""
    script = (
        "import os, sys, threading; from actors.resources.serving import unix_server\n"
        "start, most = threading.Thread.start, 1\n"
        "def limited(thread):\n"
        "    if threading.active_count() >= most: raise RuntimeError('no thread')\n"
        "    start(thread)\n"
        "threading.Thread.start = limited\n"
        "for most in (1, 2, 3) * 3:\n"
        "    try: unix_server._start(sys.argv[1], [], unix_server.Limits())\n"
        "    except OSError: print(threading.active_count(), len(os.listdir('/proc/self/fd')), flush=True)\n"
        "most = 4\n"
        "unix_server._start(sys.argv[1], [], unix_server.Limits())\n"
        "print('serves', flush=True)\n"
        "os._exit(0)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "socket")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert len(said) == 10
    assert len(set(said[:9])) == 1, said
    assert said[9] == "serves"


def test_a_thread_that_cannot_start_ends_no_later_call(
    path: Path, may_answer: threading.Event, request: pytest.FixtureRequest
) -> None:
    assert register(path) is grpc.StatusCode.OK
    may_answer.clear()
    refused = request.getfixturevalue("no_thread")
    with ThreadPoolExecutor(2) as clients:
        calls = [clients.submit(register, path) for _ in range(2)]
        wait_for(lambda: refused, 20, "the second call gets no thread")
        may_answer.set()
        assert [call.result(20) for call in calls] == [grpc.StatusCode.OK] * 2
    assert register(path) is grpc.StatusCode.OK


def test_connections_without_a_call_free_their_places(path: Path) -> None:
    idle, began = [], time.monotonic()
    for _ in range(4):
        idle.append(socket.socket(socket.AF_UNIX))
        idle[-1].settimeout(10)
        idle[-1].connect(str(path))
        idle[-1].sendall(PREFACE + SETTINGS)
        assert idle[-1].recv(9)  # it is being served
    # On a busy machine the first one's time is over by now, and so may be the others'.
    assert register(path) is grpc.StatusCode.UNAVAILABLE or time.monotonic() - began > IDLE_S
    wait_for(lambda: register(path) is grpc.StatusCode.OK, 20, "a free place")
    for one in idle:
        while one.recv(1000):
            pass
        one.close()
