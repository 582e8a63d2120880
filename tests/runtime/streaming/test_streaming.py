"""Exec, attach and port-forward of the embedded runtime: all protocols, and clients and runtimes that vanish."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
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
from actors._net.streaming.spdy import Accepted, Data, Session
from actors.runtime.streaming import server as streaming
from actors.runtime.streaming.execution import copy_size
from actors.runtime.streaming.policy import EXEC, SessionRequest
from actors.runtime.streaming.remotecommand import Channels
from actors.runtime.streaming.server import StreamingServer
from proto.cri import api_pb2 as pb
from supervisor.cli.streams.transport.connection import Connection, StreamingError
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.containerd.images import PYTHON, python
from tests.containerd.pods import container_config
from tests.harness import Stalls
from tests.runtime.containers.test_containers import start, status, wait_exited
from tests.runtime.inside import LISTENING, PROCESSES, SERVERS, listens
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


# Attach


def attach_url(cri: Cri, container: str, *, stdin: bool = False, tty: bool = False) -> str:
    return str(cri.attach(container, stdin=stdin, stdout=True, stderr=not tty, tty=tty).result())


ECHO = "while read line; do echo got $line; echo heard $line >&2; done; echo end"


def test_two_attached_clients_and_the_log_get_the_output(cri: Cri, tmp_path: Path, pod: tuple[str, str]) -> None:
    config = container_config(["sh", "-c", ECHO], log_path="0.log")
    config.stdin = True
    _, container = start(cri, "attached", config, log_directory=str(tmp_path))
    sessions = []
    for number in range(2):
        session = SpdySession(attach_url(cri, container, stdin=True), V4, "stdin", "stdout", "stderr")
        session.send("stdin", b"hello %d\n" % number)  # input is passed on once the output is attached
        session.wait(lambda session=session, number=number: b"heard hello %d\n" % number in session.said["stderr"])
        sessions.append(session)
    for number, session in enumerate(sessions):
        session.send("stdin", b"line %d\n" % number)
        for other in sessions:
            other.wait(lambda other=other, number=number: b"heard line %d\n" % number in other.said["stderr"])
    sessions[0].close()
    again = WebSocketSession(attach_url(cri, container, stdin=True), V5)
    again.send("stdin", b"more\n")  # without stdinOnce the input stays open
    again.wait(lambda: b"got more\n" in again.said["stdout"])
    sessions[1].wait(lambda: b"got more\n" in sessions[1].said["stdout"])
    assert sessions[1].said["stdout"] == b"got hello 1\ngot line 0\ngot line 1\ngot more\n"
    cri.stop_container(container, 0).result()
    assert exit_code_of(sessions[1].finish()["error"]) == 0
    assert exit_code_of(again.finish()["error"]) == 0
    logged = [line.split(" ", 3)[1:] for line in (tmp_path / "0.log").read_text().splitlines()]
    said = ["got hello 0", "got hello 1", "got line 0", "got line 1", "got more"]
    assert [text for stream, _, text in logged if stream == "stdout"] == said


@pytest.mark.parametrize("by_leaving", [False, True])
def test_stdin_once_ends_with_the_first_client(
    cri: Cri, tmp_path: Path, pod: tuple[str, str], by_leaving: bool
) -> None:
    config = container_config(["sh", "-c", ECHO], log_path="0.log")
    config.stdin = config.stdin_once = True
    _, container = start(cri, f"once{int(by_leaving)}", config, log_directory=str(tmp_path))
    session = SpdySession(attach_url(cri, container, stdin=True), V4, "stdin", "stdout", "stderr")
    session.send("stdin", b"one\n", end=not by_leaving)
    session.wait(lambda: b"got one\n" in session.said["stdout"])
    if by_leaving:
        session.close()
    else:
        assert session.finish()["stdout"] == b"got one\nend\n"
    assert wait_exited(cri, container).exit_code == 0
    assert " stdout F end\n" in (tmp_path / "0.log").read_text()


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize("by", ["spdy", "websocket"])
def test_session_ends_with_its_input_container_runs_on(cri: Cri, pod: tuple[str, str], by: str, tty: bool) -> None:
    """As `kubectl run --attach --stdin --leave-stdin-open` expects it."""
    config = container_config(["sh", "-c", ECHO])
    config.stdin, config.tty, config.stdin_once = True, tty, tty
    _, container = start(cri, f"open-{by}{int(tty)}", config)
    for line in (b"one", b"two"):
        url = attach_url(cri, container, stdin=True, tty=tty)
        session: Any
        if by == "spdy":
            session = SpdySession(url, V4, "stdin", "stdout", "resize" if tty else "stderr")
        else:
            session = WebSocketSession(url, V5)
        session.send("stdin", line + b"\n")
        # A loaded machine may take longer for the answer than the session lasts after its input.
        session.wait(lambda session=session, line=line: b"got " + line in session.said["stdout"])
        if by == "spdy":
            session.send("stdin", b"", end=True)
        else:
            session.raw(bytes((255, 0)))
        assert exit_code_of(bytes(session.finish()["error"])) == 0
    assert status(cri, container).state == pb.CONTAINER_RUNNING
    cri.stop_container(container, 0).result()


def test_attached_terminal_takes_input_and_sizes(cri: Cri, pod: tuple[str, str]) -> None:
    config = container_config(["sh"])
    config.stdin = config.tty = True
    _, container = start(cri, "typed", config)
    session = SpdySession(attach_url(cri, container, stdin=True, tty=True), V4, "stdin", "stdout", "resize")
    session.send("resize", b'{"Width":101,"Height":31}\n')
    session.send("stdin", b"stty size\n")
    session.wait(lambda: b"31 101" in session.said["stdout"])
    session.send("stdin", b"exit 3\n")
    assert exit_code_of(session.finish()["error"]) == 0
    assert wait_exited(cri, container).exit_code == 3


def test_slow_client_gets_all_and_vanished_one_blocks_none(cri: Cri, tmp_path: Path, pod: tuple[str, str]) -> None:
    lines = "i=0; while test $i -lt 20000; do i=$((i+1)); echo line $i of many that are not short; done"
    script = f"read one; read other; {lines}"
    config = container_config(["sh", "-c", script], log_path="0.log")
    config.stdin = True
    _, container = start(cri, "fast", config, log_directory=str(tmp_path))
    slow, leaver = (SpdySession(attach_url(cri, container, stdin=True), V4, "stdin", "stdout", "stderr") for _ in "12")
    for session in (slow, leaver):
        session.send("stdin", b"go\n")  # input is passed on once the output is attached
    slow.wait(lambda: slow.connection.waiting == 0)
    leaver.wait(lambda: len(leaver.said["stdout"]) > 0)
    time.sleep(1)
    leaver.close()
    said = slow.finish()["stdout"]
    assert [int(line.split()[1]) for line in said.splitlines()] == list(range(1, 20001))
    wait_exited(cri, container)
    assert len((tmp_path / "0.log").read_text().splitlines()) == 20000


def test_container_continues_when_clients_are_cut_off(
    embedded: EmbeddedInstance, cri: Cri, tmp_path: Path, pod: tuple[str, str]
) -> None:
    script = "i=0; while test ! -e /data/end; do i=$((i+1)); echo line $i; sleep 0.01; done; exit 9"
    config = container_config(["sh", "-c", script], log_path="0.log")
    config.mounts.append(pb.Mount(container_path="/data", host_path=str(tmp_path)))
    _, container = start(cri, "cut", config, log_directory=str(tmp_path))
    session = SpdySession(attach_url(cri, container), V4, "stdout", "stderr")
    session.wait(lambda: b"line" in session.said["stdout"])
    embedded.kill()
    session.wait(lambda: session.over)
    session.close()
    embedded.start()
    again = SpdySession(attach_url(cri, container), V4, "stdout", "stderr")
    again.wait(lambda: b"line" in again.said["stdout"])
    (tmp_path / "end").touch()
    again.finish()
    assert wait_exited(cri, container).exit_code == 9
    numbers = [int(line.rsplit(" ", 1)[1]) for line in (tmp_path / "0.log").read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))


# Port-forward


@pytest.fixture(scope="module")
def listening(embedded: EmbeddedInstance) -> Iterator[str]:
    """A sandbox in whose network port 80 echoes, and 81 sends many bytes and closes."""
    embedded.import_images([python()])
    sandbox, container = start(embedded.cri, "ports", container_config(SERVERS, image=PYTHON))

    def ready() -> bool:
        told = embedded.cri.exec_sync(container, LISTENING, 20).result().stdout.decode()
        return listens(told, 80) and listens(told, 81)

    wait_for(ready)
    yield sandbox
    embedded.cri.remove_pod_sandbox(sandbox).result()


class Forward:
    """A port-forward session over SPDY."""

    def __init__(self, url: str) -> None:
        self.connection = Connection(url, "portforward.k8s.io")
        self.said: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.requests = 0

    def connect(self, port: int, *, named: bool = True) -> tuple[int, int]:
        self.requests += 1
        told = {"port": str(port)} | ({"requestid": str(self.requests)} if named else {})
        error = self.connection.open({"streamtype": "error", **told})
        self.connection.write(error, b"", end=True)
        data = self.connection.open({"streamtype": "data", **told})
        self.said |= {error: b"", data: b""}
        return data, error

    def wait(self, ready: Any) -> None:
        deadline = time.monotonic() + 60
        while not ready() and time.monotonic() < deadline:
            self.connection.flush()
            for event in self.connection.read() or ():
                if isinstance(event, Data):
                    self.said[event.stream] += event.content
                    if event.end:
                        self.ended.add(event.stream)
            time.sleep(0.002)
        assert ready()


@pytest.mark.needs("mounts", "networks")
def test_forwarded_connections_are_independent(cri: Cri, listening: str) -> None:
    forward = Forward(cri.port_forward(listening).result())
    with closing(forward.connection):
        pairs = [forward.connect(80, named=number % 2 == 0) for number in range(50)]
        for data, _ in pairs:
            forward.connection.write(data, b"hello %d" % data)
        forward.wait(lambda: all(forward.said[data] == b"hello %d" % data for data, _ in pairs))
        for data, _ in pairs:
            forward.connection.write(data, b" and bye", end=True)
        forward.wait(lambda: all({data, error} <= forward.ended for data, error in pairs))
        assert all(forward.said[data] == b"hello %d and bye" % data for data, _ in pairs)
        much, error = forward.connect(81)
        forward.wait(lambda: {much, error} <= forward.ended)
        assert (len(forward.said[much]), forward.said[error]) == (3_000_000, b"")


@pytest.mark.needs("mounts", "networks")
def test_reset_connection_leaves_the_others_frames_whole(cri: Cri, listening: str) -> None:
    """kubectl resets a stream when its own client leaves, such as a browser during a download."""
    forward = Forward(cri.port_forward(listening).result())
    with closing(forward.connection):
        downloads = [forward.connect(81)[0] for _ in range(5)]
        seen, since = -1, time.monotonic()

        def stalled() -> bool:
            nonlocal seen, since
            count = fcntl.ioctl(forward.connection.fileno(), termios.FIONREAD, bytes(4))
            if (now := int.from_bytes(count, sys.byteorder)) != seen:
                seen, since = now, time.monotonic()
            return seen > 0 and time.monotonic() - since > 0.5

        wait_for(stalled)  # the runtime is in the middle of a frame
        for data in downloads:
            forward.connection.reset(data)
        good, _ = forward.connect(80)
        forward.connection.write(good, b"still there")
        forward.wait(lambda: forward.said[good] == b"still there")
        assert any(len(forward.said[data]) < 3_000_000 for data in downloads)


@pytest.mark.needs("mounts", "networks")
def test_closed_port_is_an_error_of_its_connection_only(cri: Cri, listening: str) -> None:
    forward = Forward(cri.port_forward(listening).result())
    with closing(forward.connection):
        good, _ = forward.connect(80)
        _, error = forward.connect(9)
        forward.wait(lambda: error in forward.ended)
        assert re.search(rb"error forwarding port 9 .*: cannot connect|refused", forward.said[error])
        forward.connection.write(good, b"still there")
        forward.wait(lambda: forward.said[good] == b"still there")


@pytest.mark.needs("mounts", "networks")
def test_ports_by_websocket(cri: Cri, listening: str) -> None:
    session = WebSocketSession(cri.port_forward(listening, [80, 9]).result(), V4)
    with closing(session):
        session.wait(lambda: len(session.whole) >= 4)
        assert sorted(session.whole[:4]) == [bytes((n,)) + struct.pack("<H", p) for n, p in enumerate((80, 80, 9, 9))]
        session.send(0, b"hello")
        session.wait(lambda: session.said[0].endswith(b"hello"))
        session.wait(lambda: b"error forwarding port 9" in session.said[3])


@pytest.mark.needs("mounts", "networks")
def test_spdy_within_websocket(cri: Cri, listening: str) -> None:
    session = WebSocketSession(cri.port_forward(listening).result(), "SPDY/3.1+portforward.k8s.io")
    with closing(session):
        spdy = Session()
        events: list[Any] = []
        numbers = []
        for kind in ("error", "data"):
            number, frame = spdy.open({"streamtype": kind, "port": "80", "requestid": "0"})
            numbers.append(number)
            session.raw(frame[:5])
            session.raw(frame[5:])
        session.raw(Session.data(numbers[1], b"through", end=True))

        def done() -> bool:
            events.extend(spdy.feed(b"".join(session.whole)))
            session.whole.clear()
            return Data(numbers[1], b"", True) in events

        session.wait(done)
    assert [one.stream for one in events if isinstance(one, Accepted)] == numbers
    assert b"".join(one.content for one in events if isinstance(one, Data)) == b"through"


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
