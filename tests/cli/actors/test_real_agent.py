"""The command line against a real supervisor with real actor processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proto.wire.errors import ActorError
from supervisor.cli import group
from supervisor.cli.agent import why
from supervisor.sockets.client import Client
from tests.cgroups import remove_cgroups
from tests.harness import alive, stop_process, wait_for

ROOT = Path(__file__).resolve().parents[3]


def supervisor(*arguments: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "supervisor", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture
def agent(run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The stand-in managers of `real_agent` in the run directory RUN_DIR/run, in service."""
    with running(run_dir) as process:
        yield process


@contextmanager
def running(run_dir: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Such an agent, with further arguments of `real_agent`."""
    command = [sys.executable, "-m", "tests.cli.actors.real_agent", str(run_dir), *arguments]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            wait_for(lambda: in_service(run_dir), 30, "the agent in service")
            yield process
        finally:
            process.terminate()
            process.wait(30)


def in_service(run_dir: Path) -> bool:
    with contextlib.suppress(ActorError), Client(run_dir / "run") as client:  # it may be slow to answer as it starts
        return client.alive() and all(row.state == "ready" for row in client.actors())
    return False


def rows(run_dir: Path) -> dict[str, Any]:
    done = supervisor("ps", "--run-dir", f"{run_dir}/run", "-o", "json")
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


@pytest.mark.usefixtures("agent")
def test_ps_restart_pods_describe_and_events(run_dir: Path) -> None:
    where = ("--run-dir", f"{run_dir}/run")
    before = rows(run_dir)
    assert list(before) == ["supervisor", "forkserver", "status", "probe"]
    assert supervisor("restart", "probe", *where).returncode == 0
    after = rows(run_dir)
    assert after["probe"]["incarnation"] == before["probe"]["incarnation"] + 1
    assert after["probe"]["pid"] != before["probe"]["pid"]
    assert after["status"]["pid"] == before["status"]["pid"]
    pods = json.loads(supervisor("pods", *where, "-o", "json").stdout)
    assert pods["items"][0]["metadata"]["name"] == "web-node"
    described = json.loads(supervisor("describe", "status", *where, "-o", "json").stdout)
    assert described["state"] == {"pods": 1}
    events = supervisor("events", *where, "--processes", "--count", "1")
    assert "probe #2" in events.stdout


@pytest.mark.usefixtures("agent")
def test_killed_actor_does_not_fail_a_command(run_dir: Path) -> None:
    for _ in range(3):
        os.kill(rows(run_dir)["status"]["pid"], signal.SIGKILL)
        done = supervisor("pods", "--run-dir", f"{run_dir}/run")
        assert (done.returncode, done.stderr) == (0, "")
        assert "web-node" in done.stdout


@pytest.mark.parametrize("how", ["stop", "SIGTERM"])
def test_stop_ends_the_agent(how: str, run_dir: Path, agent: subprocess.Popen[bytes]) -> None:
    pids = [row["pid"] for row in rows(run_dir).values()]
    if how == "stop":
        done = supervisor("stop", "--run-dir", f"{run_dir}/run")
        assert (done.returncode, done.stdout) == (0, "the agent has ended; its pods go on running\n")
    else:
        agent.send_signal(signal.SIGTERM)
    assert agent.wait(30) == 0
    wait_for(lambda: not any(alive(pid) for pid in pids), what="every process gone")
    assert supervisor("ps", "--run-dir", f"{run_dir}/run").returncode == 1


@pytest.mark.usefixtures("agent")
def test_second_start_on_the_run_dir_is_refused(run_dir: Path) -> None:
    done = start(run_dir)
    assert done.returncode == 1
    assert f"{run_dir}/run is in use by the supervisor with pid" in done.stderr
    assert rows(run_dir)["supervisor"]["state"] == "ready"


def start(directory: Path, **flags: str) -> subprocess.CompletedProcess[str]:
    """`supervisor start` that is expected to fail."""
    given = {
        "run_dir": f"{directory}/run",
        "root_dir": f"{directory}/root",
        "pod_logs_dir": f"{directory}/pods",
        "container_logs_dir": f"{directory}/containers",
        "cgroup_root": f"/{directory.name}",
        "container_runtime_endpoint": f"unix://{directory}/none.sock",
        "hostname_override": "node",
        "tune_kernel": "false",
        "healthz_port": "0",
    } | flags
    try:
        return supervisor("start", *(f"--{name.replace('_', '-')}={value}" for name, value in given.items()))
    finally:
        remove_cgroups(directory.name)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (lambda d: {"run_dir": f"{d}/{'x' * 100}"}, "choose a --run-dir that is at least"),
        (lambda _: {"run_dir": "/proc/nowhere"}, "run directory /proc/nowhere"),
        (lambda _: {"root_dir": "/proc/nowhere"}, "/proc/nowhere is not writable"),
        (lambda _: {"container_runtime_endpoint": "tcp://1.2.3.4:5"}, "must be a socket such as unix:///"),
        (lambda d: {"config": f"{d}/none"}, "/none: does not exist"),
        (lambda d: {"supervisor_config": f"{d}/none"}, "cannot read"),
    ],
    ids=["long path", "run dir", "root dir", "endpoint", "config", "supervisor config"],
)
def test_refused_start_is_one_line_on_stderr(flags: Callable[[Path], dict[str, str]], said: str, run_dir: Path) -> None:
    done = start(run_dir, **flags(run_dir))
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("supervisor: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert "Traceback" not in done.stderr


def test_watch_can_begin_before_the_agent_and_ends_with_ctrl_c(run_dir: Path) -> None:
    line = [sys.executable, "-m", "supervisor", "pods", "--watch", "--wait=60", f"--run-dir={run_dir}/run"]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline().split()[:2] == ["NAMESPACE", "NAME"]
        with subprocess.Popen([sys.executable, "-m", "tests.cli.actors.real_agent", str(run_dir)], cwd=ROOT) as process:
            try:
                assert watch.stdout.readline().split()[:4] == ["default", "web-node", "1/1", "Running"]
                watch.send_signal(signal.SIGINT)
                assert watch.wait(30) == 130
            finally:
                process.terminate()
                process.wait(30)


def test_why_answers_while_actor_and_supervisor_are_stopped(
    agent: subprocess.Popen[bytes], run_dir: Path, runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--run-dir", f"{run_dir}/run")
    pid = rows(run_dir)["status"]["pid"]
    stop_process(agent.pid)  # first: it would replace the actor
    stop_process(pid)
    try:
        done = supervisor("why", "actor/status", "-o", "json", *where)
        found = json.loads(done.stdout)
        assert found["sentence"].startswith(f"Actor status is stopped by a signal (process {pid}")
        assert found["causes"][0]["code"] == "actor-stopped"
        assert found["causes"][0]["links"][0]["actor"] == "status"
        assert supervisor("why", "node", *where).stdout.startswith("Node waits for status, which is stopped")
    finally:
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: ") T " not in stat(pid), 10, "status runs")
        agent.send_signal(signal.SIGCONT)
    # It waits 50 ms for each peer, and a peer that was stopped may need longer at first.
    said = "Pod default/web-node is Running and waits for nothing.\n"
    wait_for(lambda: supervisor("why", "pod/web-node", *where).stdout == said, 20, said)
    monkeypatch.setattr(why, "PEERS_S", 20.0)  # for a busy machine, too
    monkeypatch.setattr(why, "STATUS_S", 20.0)
    for wrong, text in (("pod/x", "cannot find"), ("actor/x", "cannot find actor 'x'"), ("x", "write pod/NAME")):
        told = runner.invoke(group, ["why", wrong, *where])
        assert (told.exit_code, text in told.stderr) == (1, True), told.stderr


def stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.usefixtures("agent")
def test_deaths_shows_call_and_evidence(run_dir: Path) -> None:
    where = ("--run-dir", f"{run_dir}/run")
    assert supervisor("deaths", *where).stdout == "No deaths.\n"
    os.kill(rows(run_dir)["probe"]["pid"], signal.SIGKILL)
    wait_for(lambda: rows(run_dir)["probe"]["incarnation"] == 2, 20, "probe starts again")
    os.kill(rows(run_dir)["status"]["pid"], signal.SIGSTOP)
    wait_for(lambda: rows(run_dir)["status"]["incarnation"] == 2, 60, "status is replaced")
    killed, hung = json.loads(supervisor("deaths", "-o", "json", *where).stdout)
    assert (killed["actor"], killed["cause"], killed["incarnation"]) == ("probe", "killed", 1)
    assert (hung["actor"], hung["cause"], hung["stall"]) == ("status", "hung", "stopped")
    assert "Stall: stopped: " in Path(hung["evidence"]).read_text()
    assert rows(run_dir)["status"]["deaths"] == [["hung", "", 1]]
    shown = supervisor("deaths", "status", *where).stdout
    assert "hung: stopped" in shown
    assert "probe" not in shown
