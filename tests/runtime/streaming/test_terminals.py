"""Containers that close their terminal for a moment, as programs do that start others on it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.containerd.pods import container_config
from tests.runtime.containers.test_containers import start, wait_exited
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.streaming.clients import SpdySession
from tests.runtime.streaming.test_streaming import V4, attach_url

SCRIPT = """
echo one
exec </dev/null >/dev/null 2>&1
touch closed
until test -e go; do sleep 0.1; done
exec </dev/tty >/dev/tty 2>&1
echo two
read line
stty size
echo got $line
seq 10000 12000
exit 3
"""
"""Closes the terminal, opens it again when the file `go` exists, and ends after much output."""


WITH_RUNC = pytest.param(1, marks=pytest.mark.needs("runc", "mounts"))
WITH_MOUNTS = pytest.param(2, marks=pytest.mark.needs("mounts"))


@pytest.fixture(scope="module", params=[WITH_RUNC, WITH_MOUNTS, 3])
def instance(request: pytest.FixtureRequest) -> Iterator[EmbeddedInstance]:
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvtty-")), isolation=request.param) as made:
        yield made


@pytest.fixture
def cri(instance: EmbeddedInstance) -> Iterator[Cri]:
    yield instance.cri
    instance.remove_pods()


def test_terminal_outlives_its_closing_by_the_container(cri: Cri, tmp_path: Path) -> None:
    config = container_config(["sh", "-c", SCRIPT], log_path="0.log")
    config.stdin = config.tty = True
    _, container = start(cri, "reopened", config, log_directory=str(tmp_path))
    wait_for(lambda: cri.exec_sync(container, ["test", "-e", "closed"], 20).result().exit_code == 0)
    session = SpdySession(attach_url(cri, container, stdin=True, tty=True), V4, "stdin", "stdout", "resize")
    session.send("resize", b'{"Width":101,"Height":31}\n')
    cri.exec_sync(container, ["touch", "go"], 20).result()
    session.wait(lambda: b"two\r\n" in session.said["stdout"] or session.over)
    session.send("stdin", b"hello\n")
    said = session.finish()
    assert exit_code_of(said["error"]) == 0
    assert b"31 101\r\ngot hello\r\n" in said["stdout"]
    assert said["stdout"].endswith(b"\r\n11999\r\n12000\r\n")
    assert wait_exited(cri, container).exit_code == 3
    logged = [line.split(" ", 3)[3].rstrip("\r") for line in (tmp_path / "0.log").read_text().splitlines()]
    assert logged[:2] == ["one", "two"]
    assert logged[-2001:] == [str(number) for number in range(10000, 12001)]
