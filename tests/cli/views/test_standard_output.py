"""Commands as processes whose output is full, closed or of another encoding, or with too few descriptors."""

from __future__ import annotations

import os
import pty
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from proto.agent.settings import Settings
from proto.pods.events import Events
from proto.pods.status import Pods
from supervisor.cli.streams.transport.remote import _write_all
from supervisor.cli.views.output import OutputError
from supervisor.host import settings_file
from tests.cli.fake_agent import FakeAgent
from tests.cli.pods.test_events import event
from tests.cli.test_commands import make_pod

ROOT = Path(__file__).resolve().parents[3]
POD = make_pod()
CLOSED = "exec <&- >&-"
FULL = "exec >/dev/full"
BROKEN = {FULL: "cannot write the output: No space left on device\n", CLOSED: "cannot write the output: it is closed\n"}
SHOWS = """
from proto.common import interpreter
from supervisor.cli.views import output
interpreter.enter_utf8_mode()
output.prepare()
print("gr\\xf6\\xdfe \\u65e5")
"""

COMMANDS = [
    "--help",
    "--version",
    "ps",
    "ps -o json",
    "ps --help",
    "pods",
    "pods -o json",
    "pods --watch",
    "events",
    "events --processes",
    "describe pod web",
    "ask pleg",
    "ask status ListPods",
    "logs web",
    "config fields",
    "completion bash",
    "console -c ps",
]


@pytest.fixture(scope="module")
def agent() -> Iterator[FakeAgent]:
    """An agent with a pod that has a log, and an event with a character that latin-1 lacks."""
    with tempfile.TemporaryDirectory(prefix="nv-", dir="/tmp") as directory:
        run_dir = Path(directory)
        settings_file.write(Settings(run_dir=directory, node_name="node", pod_logs_dir=f"{directory}/logs"))
        log = run_dir / "logs" / f"default_web-node_{POD.metadata.uid}" / "c" / "0.log"
        log.parent.mkdir(parents=True)
        log.write_text("2026-11-20T13:34:33.1Z stdout F hello\n")
        found = (event("web-node", "probe said \ufffd"), event("web-node", "second", hex="11"))
        answers: dict[str, Any] = {
            "status": lambda _: Pods(pods=(POD,)),
            "events": lambda _: Events(events=found, revision=5),
        }
        idle = {name: lambda _: None for name in ("probe", "pleg", "image_gc")}  # more sockets for `tap`
        with FakeAgent(run_dir, answers | idle) as fake:
            yield fake


def supervisor(
    agent: FakeAgent,
    line: str,
    redirection: str = ":",
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
    cwd: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "supervisor", *shlex.split(line)]
    return subprocess.run(
        ["sh", "-c", f'{redirection}; exec "$@"', "sh", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NODEVISOR_RUN_DIR": str(agent.run_dir), **(environment or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        preexec_fn=before,
    )


@pytest.mark.parametrize("redirection", BROKEN)
@pytest.mark.parametrize("line", COMMANDS)
def test_lost_output_is_one_line_on_stderr(agent: FakeAgent, line: str, redirection: str) -> None:
    done = supervisor(agent, line, redirection)
    assert (done.returncode, done.stderr) == (1, f"supervisor: {BROKEN[redirection]}")


@pytest.mark.parametrize("line", ["ps", "logs web", "--help"])
def test_closed_stderr_leaves_only_the_exit_code(agent: FakeAgent, line: str) -> None:
    done = supervisor(agent, line, "exec >/dev/full 2>&-")
    assert (done.returncode, done.stderr) == (1, "")


def test_commands_work_without_stdin_and_stderr(agent: FakeAgent) -> None:
    done = supervisor(agent, "logs web", "exec <&- 2>&-")
    assert (done.returncode, done.stdout) == (0, "hello\n")


def test_closed_pipe_ends_a_command_without_a_message(agent: FakeAgent) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "supervisor", "events", "--run-dir", str(agent.run_dir)],
            cwd=ROOT,
            stdout=write,
            stderr=subprocess.PIPE,
        ) as process:
            _, said = process.communicate(timeout=60)
    finally:
        os.close(write)
    assert (process.returncode, said) == (1, b"")


def test_traceback_is_shown_on_request(agent: FakeAgent) -> None:
    done = supervisor(agent, "ps", FULL, {"NODEVISOR_TRACEBACK": "1"})
    assert done.returncode != 0
    assert "OutputError: [Errno 28] No space left on device" in done.stderr


def test_characters_without_an_encoding_are_escaped(agent: FakeAgent) -> None:
    done = supervisor(agent, "events", environment={"PYTHONIOENCODING": "latin-1"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "probe said \\ufffd\n" in done.stdout
    assert "second\n" in done.stdout


@pytest.mark.needs("locales")
@pytest.mark.parametrize(("charset", "shown"), [("ISO-8859-1", b"gr\xf6\xdfe \\u65e5"), ("UTF-8", "größe 日".encode())])
def test_terminals_keep_the_encoding_of_their_locale(tmp_path: Path, charset: str, shown: bytes) -> None:
    subprocess.run(["localedef", "-i", "de_DE", "-f", charset, tmp_path / "there"], check=True, timeout=60)
    ours, theirs = pty.openpty()
    environment = {"LOCPATH": str(tmp_path), "LC_ALL": "there", "PYTHONPATH": str(ROOT)}
    try:
        subprocess.run([sys.executable, "-c", SHOWS], env=environment, stdout=theirs, check=True, timeout=60)
        assert os.read(ours, 99) == shown + b"\r\n"
    finally:
        os.close(ours)
        os.close(theirs)
    piped = subprocess.run([sys.executable, "-c", SHOWS], env=environment, capture_output=True, check=True, timeout=60)
    assert piped.stdout == "größe 日\n".encode()


@pytest.mark.parametrize("line", ["tap", "bench"])
def test_too_few_descriptors_are_one_line(agent: FakeAgent, line: str) -> None:
    done = supervisor(agent, line, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16)))
    expected = "supervisor: cannot finish: Too many open files; raise the limit, `ulimit -n`\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_deleted_working_directory_is_named(agent: FakeAgent, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = supervisor(agent, "pods --run-dir run", "rmdir ../gone", cwd=gone)
    expected = "supervisor: cannot finish: the working directory is deleted; change to another one\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_exec_reports_lost_output_as_such() -> None:
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OutputError):
        _write_all(full.fileno(), b"x")
