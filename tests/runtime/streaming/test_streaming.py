"""Exec of the embedded runtime: all protocols, URLs that are valid once, and clients and runtimes that vanish."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors._net import client_watchdog
from actors._net.loop import Loop
from actors._net.stream import Stream
from actors.runtime.streaming import server as streaming
from actors.runtime.streaming.execution import copy_size
from actors.runtime.streaming.policy import EXEC, SessionRequest
from actors.runtime.streaming.remotecommand import Channels
from actors.runtime.streaming.server import StreamingServer
from proto.cri import api_pb2 as pb
from supervisor.cli.streams.transport.connection import StreamingError
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.containerd.pods import container_config
from tests.harness import Stalls
from tests.runtime.containers.test_containers import start, status
from tests.runtime.inside import PROCESSES
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.streaming.clients import SpdySession, WebSocketSession

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
TELL = "echo out; echo err >&2; exit 7"


@pytest.fixture(scope="module")
def pod(embedded: EmbeddedInstance) -> Iterator[tuple[str, str]]:
    """A sandbox and a container that sleeps."""
    yield start(embedded.cri, "streamed", container_config(["sleep", "100000"]))
    embedded.remove_pods()


@pytest.fixture
def cri(embedded: EmbeddedInstance) -> Cri:
    return embedded.cri


def exec_url(cri: Cri, container: str, script: str, *, stdin: bool = False, tty: bool = False) -> str:
    told = cri.exec(container, ["sh", "-c", script], stdin=stdin, stdout=True, stderr=not tty, tty=tty)
    return str(told.result())


def attach_url(cri: Cri, container: str, *, stdin: bool = False, tty: bool = False) -> str:
    return str(cri.attach(container, stdin=stdin, stdout=True, stderr=not tty, tty=tty).result())


def processes(cri: Cri, container: str, word: str) -> int:
    """Number of processes in the container with that word in their command line."""
    listed = cri.exec_sync(container, PROCESSES, 20).result().stdout.decode()
    return sum(word in line for line in listed.splitlines())


def content(file: Path) -> bytes:
    """Of a file in /proc; empty when its process has ended."""
    with contextlib.suppress(OSError):
        return file.read_bytes()
    return b""


def commands_with(mark: str) -> list[Path]:
    """The command lines in the machine's /proc that contain the mark."""
    return [one for one in Path("/proc").glob("[1-9]*/cmdline") if mark.encode() in content(one)]


# Exec


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"])
def test_a_command_by_spdy(cri: Cri, pod: tuple[str, str], protocol: str) -> None:
    said = SpdySession(exec_url(cri, pod[1], TELL), protocol, "stdout", "stderr").finish()
    assert (said["stdout"], said["stderr"]) == (b"out\n", b"err\n")
    if protocol == V4:
        assert exit_code_of(said["error"]) == 7
        assert json.loads(said["error"])["reason"] == "NonZeroExitCode"
    else:
        assert said["error"] == b"command terminated with non-zero exit code: exit status 7"


@pytest.mark.parametrize("protocol", [V5, V4, "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"])
def test_a_command_by_websocket(cri: Cri, pod: tuple[str, str], protocol: str) -> None:
    session = WebSocketSession(exec_url(cri, pod[1], TELL), protocol)
    assert f"Sec-WebSocket-Protocol: {protocol}" in session.head
    said = session.finish()
    assert (said["stdout"], said["stderr"]) == (b"out\n", b"err\n")
    if protocol.startswith(("v4.", "v5.")):
        assert exit_code_of(said["error"]) == 7
    else:
        assert b"exit status 7" in said["error"]


def test_exit_code_0_is_a_success(cri: Cri, pod: tuple[str, str]) -> None:
    said = SpdySession(exec_url(cri, pod[1], "true"), V4, "stdout", "stderr").finish()
    assert json.loads(said["error"])["status"] == "Success"
    said = SpdySession(exec_url(cri, pod[1], "true"), "channel.k8s.io", "stdout", "stderr").finish()
    assert said["error"] == b""


def test_missing_command_is_named(cri: Cri, pod: tuple[str, str]) -> None:
    url = cri.exec(pod[1], ["/no/such"], stdin=False, stdout=True, stderr=True, tty=False).result()
    said = SpdySession(url, V4, "stdout", "stderr").finish()
    with pytest.raises(StreamingError, match=r"error executing command in container: .*[Nn]o such"):
        exit_code_of(said["error"])


@pytest.mark.parametrize(("by", "megabytes"), [("spdy", 100), ("websocket", 30)])
def test_input_and_its_end_arrive(cri: Cri, pod: tuple[str, str], by: str, megabytes: int) -> None:
    data = os.urandom(1_000_000) * megabytes
    url = exec_url(cri, pod[1], "sha256sum; exit 3", stdin=True)
    if by == "spdy":
        spdy = SpdySession(url, V4, "stdin", "stdout", "stderr")
        spdy.send("stdin", data, end=True)
        said = spdy.finish()
    else:
        websocket = WebSocketSession(url, V5)
        websocket.send("stdin", data)
        websocket.raw(bytes((255, 0)))
        said = websocket.finish()
    assert said["stdout"].split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert exit_code_of(said["error"]) == 3


def test_input_continues_after_the_output_is_closed(cri: Cri, pod: tuple[str, str]) -> None:
    data = os.urandom(5_000_000)
    session = SpdySession(exec_url(cri, pod[1], "cat > /tmp/whole", stdin=True), V4, "stdin", "stdout", "stderr")
    session.send("stdin", data, end=True)
    assert exit_code_of(session.finish()["error"]) == 0
    found = cri.exec_sync(pod[1], ["sha256sum", "/tmp/whole"], 20).result().stdout.split()[0].decode()
    assert found == hashlib.sha256(data).hexdigest()


def test_output_continues_after_the_inputs_end(cri: Cri, pod: tuple[str, str]) -> None:
    session = SpdySession(
        exec_url(cri, pod[1], "cat; sleep 0.3; echo after", stdin=True), V4, "stdin", "stdout", "stderr"
    )
    session.send("stdin", b"before\n", end=True)
    assert session.finish()["stdout"] == b"before\nafter\n"


def test_slow_client_gets_all_output_of_an_ended_command(cri: Cri, pod: tuple[str, str]) -> None:
    script = "head -c 20000000 /dev/zero; echo whole >&2"
    session = SpdySession(exec_url(cri, pod[1], script), V4, "stdout", "stderr")
    time.sleep(4)  # the client reads nothing
    said = session.finish()
    assert (len(said["stdout"]), said["stderr"], exit_code_of(said["error"])) == (20_000_000, b"whole\n", 0)


@pytest.mark.parametrize("by", ["spdy", "websocket"])
def test_terminal_size_changes_and_exit_code(cri: Cri, pod: tuple[str, str], by: str) -> None:
    url = exec_url(cri, pod[1], "sh", stdin=True, tty=True)
    session: Any = SpdySession(url, V4, "stdin", "stdout", "resize") if by == "spdy" else WebSocketSession(url, V5)
    with closing(session):
        for width, height in ((99, 33), (122, 44)):
            session.send("resize", json.dumps({"Width": width, "Height": height}).encode())
            wanted = f"{height} {width}".encode()
            deadline = time.monotonic() + 30
            while wanted not in session.said["stdout"] and time.monotonic() < deadline:
                before = len(session.said["stdout"])
                session.send("stdin", b"stty size; echo do''ne\n")
                session.wait(lambda before=before: b"done" in session.said["stdout"][before:])
            assert wanted in session.said["stdout"]
        session.send("stdin", b"echo $TERM; exit 5\n")
        said = session.finish()
    assert b"xterm" in said["stdout"]
    assert exit_code_of(said["error"]) == 5


def test_size_is_copied_to_a_runtime_that_ignores_the_signal() -> None:
    """As crun before 1.8.7."""
    script = (
        "import os; master, own = os.openpty(); print('up', flush=True); input(); print(*os.get_terminal_size(own))"
    )
    ours, its = os.openpty()
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runtime:
        assert runtime.stdout
        assert runtime.stdout.readline() == b"up\n"
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 122, 0, 0))
        pidfd = os.pidfd_open(runtime.pid)
        assert copy_size(ours, runtime.pid, pidfd)
        assert runtime.communicate(b"\n")[0] == b"122 44\n"
    for fd in (ours, its, pidfd):
        os.close(fd)


@pytest.mark.parametrize("tty", [False, True])
def test_command_ends_when_its_client_vanishes(
    embedded: EmbeddedInstance, cri: Cri, pod: tuple[str, str], tty: bool
) -> None:
    fds = Path(f"/proc/{embedded.pid}/fd")
    SpdySession(exec_url(cri, pod[1], "true"), V4, "stdout", "stderr").finish()
    files = Path(embedded.settings.run_dir, "runtime", "exec")
    wait_for(lambda: not list(files.iterdir()))
    before = len(list(fds.iterdir()))
    kinds = ("stdin", "stdout", "resize") if tty else ("stdin", "stdout", "stderr")
    script = "trap '' HUP; echo up; sleep 4711; sleep 4711"
    sessions = [SpdySession(exec_url(cri, pod[1], script, stdin=True, tty=tty), V4, *kinds) for _ in range(3)]
    for session in sessions:
        session.wait(lambda session=session: b"up" in session.said["stdout"])
    assert processes(cri, pod[1], "trap") >= 3
    for session in sessions:
        session.close()
    wait_for(lambda: processes(cri, pod[1], "trap") == 0)
    wait_for(lambda: not list(files.iterdir()))
    wait_for(lambda: len(list(fds.iterdir())) <= before)


def test_vanished_client_of_a_blocked_command_is_noticed(cri: Cri, pod: tuple[str, str]) -> None:
    url = exec_url(cri, pod[1], "echo up; sleep 4712", stdin=True)
    session = SpdySession(url, V4, "stdin", "stdout", "stderr")
    session.wait(lambda: b"up" in session.said["stdout"])
    session.connection.write(session.streams["stdin"], b"x" * 1_000_000)  # more than a pipe holds
    time.sleep(0.5)
    session.close()
    wait_for(lambda: processes(cri, pod[1], "4712") == 0, 30)


def test_commands_that_ignore_their_end_hold_up_no_other(cri: Cri, pod: tuple[str, str]) -> None:
    many, mark = 64, secrets.token_hex(8)
    script = f"trap '' HUP; echo up; : {mark}; while :; do sleep 1; done"
    sessions = [SpdySession(exec_url(cri, pod[1], script), V4, "stdout", "stderr") for _ in range(many)]
    for session in sessions:
        session.wait(lambda session=session: b"up" in session.said["stdout"])
    url = exec_url(cri, pod[1], "true")  # valid for a minute
    for session in sessions:
        session.close()
    assert exit_code_of(SpdySession(url, V4, "stdout", "stderr").finish()["error"]) == 0
    # Behind their ends, it would begin when a thread has no more of them, and each other one has its last.
    # Another exec could take as long as the commands have left.
    assert len(commands_with(mark)) > streaming.THREADS
    wait_for(lambda: processes(cri, pod[1], "trap") == 0, 60)


def test_failed_session_is_cut_off_before_its_command_ends(cri: Cri, pod: tuple[str, str]) -> None:
    mark = secrets.token_hex(8)  # other runs of this test may be on this machine
    script = f"trap '' HUP; echo {mark}; while :; do sleep 1; done"
    session = SpdySession(exec_url(cri, pod[1], script, stdin=True), V4, "stdin", "stdout", "stderr")
    session.wait(lambda: mark.encode() in session.said["stdout"])
    # The shell's child is a copy of it until it executes `sleep`.
    wait_for(lambda: len(commands_with(mark)) == 1)
    with Stalls() as machine:
        os.write(session.connection.fileno(), b"\x80\x09\x00\x01\x00\x00\x00\x00")  # of another version of SPDY
        session.wait(lambda: session.over)
        left = commands_with(mark)
    # Another exec could take longer than the command's last seconds, and so may a machine that stands still.
    assert left or machine.longest_s > 1
    session.close()
    wait_for(lambda: processes(cri, pod[1], "trap") == 0, 30)


def test_next_runtime_ends_commands_of_a_killed_one(embedded: EmbeddedInstance, cri: Cri, pod: tuple[str, str]) -> None:
    session = SpdySession(exec_url(cri, pod[1], "trap '' HUP; echo up; exec sleep 4713"), V4, "stdout", "stderr")
    session.wait(lambda: b"up" in session.said["stdout"])
    embedded.kill()
    session.wait(lambda: session.over)
    session.close()
    embedded.start()
    wait_for(lambda: processes(cri, pod[1], "4713") == 0)
    assert status(cri, pod[1]).state == pb.CONTAINER_RUNNING


@pytest.mark.parametrize(
    ("streams", "code"),
    [
        ({"stdin": False, "stdout": False, "stderr": False, "tty": False}, "InvalidArgument"),
        ({"stdin": True, "stdout": True, "stderr": True, "tty": True}, "InvalidArgument"),
    ],
)
def test_impossible_streams_are_refused(cri: Cri, pod: tuple[str, str], streams: dict[str, bool], code: str) -> None:
    for call in (lambda: cri.exec(pod[1], ["true"], **streams), lambda: cri.attach(pod[1], **streams)):
        with pytest.raises(CriError) as raised:
            call().result()
        assert raised.value.code == code


def test_exec_in_an_exited_container_is_refused(cri: Cri, pod: tuple[str, str]) -> None:
    sandbox, container = start(cri, "ending", container_config(["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]))
    prepared = exec_url(cri, container, "true")
    running = SpdySession(exec_url(cri, container, "echo up; sleep 1000"), V4, "stdout", "stderr")
    running.wait(lambda: b"up" in running.said["stdout"])
    cri.stop_container(container, 5).result()
    assert exit_code_of(running.finish()["error"]) == 137
    with pytest.raises(StreamingError, match="is not running"):
        exit_code_of(SpdySession(prepared, V4, "stdout", "stderr").finish()["error"])
    for call in (lambda: exec_url(cri, container, "true"), lambda: attach_url(cri, container)):
        with pytest.raises(CriError, match="is not running") as raised:
            call()
        assert raised.value.code == "FailedPrecondition"
    cri.stop_pod_sandbox(sandbox).result()
    with pytest.raises(CriError, match="is not ready"):
        cri.port_forward(sandbox).result()
    cri.remove_pod_sandbox(sandbox).result()


# Tokens


def ask(url: str, *headers: str, method: str = "POST") -> str:
    """The status line of the response."""
    target = urlsplit(url)
    with socket.create_connection((target.hostname, target.port), 10) as connection:
        head = "\r\n".join((f"{method} {target.path} HTTP/1.1", "Host: x", *headers, "", ""))
        connection.sendall(head.encode())
        return connection.recv(4096).decode().splitlines()[0]


SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")


def test_url_is_valid_once_for_its_own_kind(cri: Cri, pod: tuple[str, str]) -> None:
    url = exec_url(cri, pod[1], "true")
    assert urlsplit(url).hostname == "127.0.0.1"
    assert "404" in ask(url.replace("/exec/", "/attach/"), *SPDY)
    assert "404" in ask(f"{url}x", *SPDY)
    assert "400" in ask(url)
    assert "405" in ask(url, *SPDY, method="PUT")
    assert "101" in ask(url, *SPDY)
    assert "404" in ask(url, *SPDY)


def test_unknown_protocol_is_refused(cri: Cri, pod: tuple[str, str]) -> None:
    assert "403" in ask(exec_url(cri, pod[1], "true"), *SPDY[:2], "X-Stream-Protocol-Version: v9.channel.k8s.io")
    key = ("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13")
    asked = ("Connection: Upgrade", "Upgrade: websocket", *key, "Sec-WebSocket-Protocol: v9.channel.k8s.io")
    assert "400" in ask(exec_url(cri, pod[1], "true"), *asked, method="GET")


# Ends


def test_begun_write_is_completed_when_it_is_cancelled() -> None:
    loop = Loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(20)
    received = bytearray()
    with closing(ours), closing(theirs):
        stream = Stream(loop, ours)
        begun = loop.spawn(stream.write(b"a" * 5_000_000))
        begun.cancel()
        for letter in (b"b", b"c"):
            loop.spawn(stream.write(letter * 5_000_000)).cancel()  # not one byte of it was sent
        last = loop.spawn(stream.write(b"end"))
        while not received.endswith(b"end"):
            received += theirs.recv(1_000_000)
            loop.call(lambda: None)
            loop._run_once()
        assert last.done()
    assert received == b"a" * 5_000_000 + b"end"


# Idle sessions


def test_ended_command_waits_for_no_idle_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_watchdog, "LOOK_S", 0.05)

    async def fill(stream: Stream, *_: object) -> dict[str, str]:
        """End when the client, which reads nothing, has room for no more."""
        held.append(descriptors.free < descriptors._most)
        with contextlib.suppress(BlockingIOError):
            while True:
                stream._socket.send(bytes(65536))
        return {"status": "Success"}

    held: list[bool] = []
    server = StreamingServer(None, 0.3)  # type: ignore[arg-type]
    monkeypatch.setattr(server, "_execute", fill)
    descriptors = server._limits.descriptors
    session = SpdySession(server.url(SessionRequest(EXEC, "c", stdout=True)), V4, "stdout")
    session.wait(lambda: session.connection.waiting == 0)
    wait_for(lambda: held == [True])  # it may be over before the test looks
    wait_for(lambda: descriptors.free == descriptors._most)
    session.close()
    server.stop()


def test_ended_command_waits_for_a_client_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte that the client sends meanwhile would make the kernel drop what a closed connection has not sent."""
    monkeypatch.setattr(streaming, "LEAVE_S", 0.1)
    whole = bytes(500_000)

    async def tell(_: Stream, channels: Channels, *__: object) -> dict[str, str]:
        await channels.send("stdout", whole)
        return {"status": "Success"}

    server = StreamingServer(None, 60.0)  # type: ignore[arg-type]
    monkeypatch.setattr(server, "_execute", tell)
    session = WebSocketSession(server.url(SessionRequest(EXEC, "c", stdin=True, stdout=True)), V4, receive_buffer=4096)
    time.sleep(1.0)  # the client reads nothing, ten times as long as a client that has received all may stay
    session.send(0, b"late")
    session.wait(lambda: 3 in session.said or session.over)
    assert (len(session.said[1]), json.loads(session.said[3])["status"]) == (len(whole), "Success")
    session.close()
    server.stop()


def test_idle_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_watchdog, "LOOK_S", 0.05)
    loop = Loop()
    server, client = (socket.socketpair() for _ in "12")
    with closing(server[1]), closing(client[0]), closing(client[1]):
        listener = socket.create_server(("127.0.0.1", 0))
        with listener, socket.create_connection(listener.getsockname()), closing(listener.accept()[0]) as connected:
            ended: list[float] = []
            touched = [time.monotonic()]
            watch = client_watchdog.ClientWatchdog(
                loop, Stream(loop, connected), 0.3, lambda: (ended.append(time.monotonic()), loop.stop())
            )
            loop.call_later(0.2, lambda: (touched.append(time.monotonic()), watch.touch()))
            loop.run()
            assert ended[0] - touched[-1] >= 0.3  # a machine that pauses this long ends it without the touch
    server[0].close()
