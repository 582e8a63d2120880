"""Exec and attach sessions whose client sends input and reads no output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.containerd.pods import container_config
from tests.runtime.containers.test_containers import start, wait_exited
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.streaming.clients import SpdySession
from tests.runtime.streaming.test_streaming import V4, processes


@pytest.fixture
def cri(embedded: EmbeddedInstance) -> Iterator[Cri]:
    yield embedded.cri
    embedded.remove_pods()


def run(cri: Cri, container: str, script: str) -> SpdySession:
    """An exec session with input only, at the end of its input."""
    url = cri.exec(container, ["sh", "-c", script], stdin=True, stdout=False, stderr=False, tty=False).result()
    session = SpdySession(str(url), V4, "stdin")
    session.send("stdin", b"", end=True)
    return session


def test_command_ends_when_its_input_only_client_vanishes(cri: Cri) -> None:
    _, container = start(cri, "input", container_config(["sleep", "100000"]))
    session = run(cri, container, "cat; exec sleep 4719")
    wait_for(lambda: processes(cri, container, "4719") == 1)
    session.close()
    wait_for(lambda: processes(cri, container, "4719") == 0)


def test_input_only_command_has_an_exit_code(cri: Cri) -> None:
    _, container = start(cri, "code", container_config(["sleep", "100000"]))
    session = run(cri, container, "cat; until test -e go; do sleep 0.1; done; exit 7")
    assert cri.exec_sync(container, ["touch", "go"], 20).result().exit_code == 0
    assert exit_code_of(session.finish()["error"]) == 7


def test_input_only_attachment_ends_with_its_input(cri: Cri, tmp_path: Path) -> None:
    config = container_config(["sh", "-c", "read line; echo got $line; sleep 1000"], log_path="0.log")
    config.stdin = True
    _, container = start(cri, "fed", config, log_directory=str(tmp_path))
    url = cri.attach(container, stdin=True, stdout=False, stderr=False, tty=False).result()
    session = SpdySession(str(url), V4, "stdin")
    session.send("stdin", b"hello\n", end=True)
    assert exit_code_of(session.finish()["error"]) == 0
    wait_for(lambda: " stdout F got hello\n" in (tmp_path / "0.log").read_text())
    cri.stop_container(container, 0).result()
    assert wait_exited(cri, container).exit_code == 137


def test_terminal_of_an_input_only_session_is_read(cri: Cri) -> None:
    _, container = start(cri, "terminal", container_config(["sleep", "100000"]))
    command = ["sh", "-c", "read line; seq 20000; exit 7"]
    url = cri.exec(container, command, stdin=True, stdout=False, stderr=False, tty=True).result()
    session = SpdySession(str(url), V4, "stdin", "resize")
    session.send("stdin", b"go\n")
    assert exit_code_of(session.finish()["error"]) == 7
