"""Attach of the embedded runtime: output, input and terminals of running containers, and clients that leave."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from actors._cri.client import Cri
from proto.cri import api_pb2 as pb
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.containerd.pods import container_config
from tests.runtime.containers.test_containers import start, status, wait_exited
from tests.runtime.instance import EmbeddedInstance
from tests.runtime.streaming.clients import SpdySession, WebSocketSession
from tests.runtime.streaming.test_streaming import V4, V5, attach_url, cri, pod

__all__ = ["cri", "pod"]  # fixtures

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
