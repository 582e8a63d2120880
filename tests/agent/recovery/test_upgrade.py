"""Upgrade without drain: another release takes over the running agent, and gives it back."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from proto.agent.actor import Describe
from proto.agent.supervisor import GetUpgrade, StartUpgrade
from proto.wire.errors import ActorDead, AskTimeout, Refused
from supervisor.sockets.client import CannotReach, Client
from tests.agent.agent import Agent, container, pod
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for

ROOT = Path(__file__).resolve().parents[3]
PODS = int(os.environ.get("NODEVISOR_UPGRADE_PODS", "6"))
"""30 before a release."""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another release: a copy of this one, whose pleg says so."""
    place = tmp_path / "other"
    for package in ("actors", "supervisor", "proto"):
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    change(place / "actors/pleg/actor.py", "        return {", '        return {"release": "other", ')
    return place


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def serving(agent: Agent) -> None:
    """Let the kubelet API answer anybody."""
    config = yaml.safe_load(agent.config.read_text())
    config["authentication"] = {"anonymous": {"enabled": True}, "webhook": {"enabled": False}}
    config["authorization"] = {"mode": "AlwaysAllow"}
    agent.config.write_text(yaml.safe_dump(config))


@pytest.fixture
def agent() -> Iterator[Agent]:
    with embedded_agent(prepare=serving) as started:
        yield started


class Traffic(threading.Thread):
    """Clients of the kubelet API, one after the other, each with a connection of its own."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.answered = 0
        self.refused: list[str] = []
        self._over = threading.Event()
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE

    def run(self) -> None:
        while not self._over.wait(0.02):
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain:
                    self._ask(plain)
            except ConnectionRefusedError as error:
                self.refused.append(str(error))
            except OSError:
                continue  # a connection that the former incarnation had accepted

    def _ask(self, plain: socket.socket) -> None:
        with self._context.wrap_socket(plain) as secure:
            secure.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.answered += secure.recv(100).startswith(b"HTTP/1.1 200")

    def __enter__(self) -> Traffic:
        self.start()
        wait_for(lambda: self.answered, 30, "the kubelet API answers")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def probed(name: str) -> dict[str, Any]:
    check = {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 5}
    one = container("c", "mkdir /w; echo > /w/index.html; httpd -f -p 8080 -h /w")
    return pod(name, one | {"readinessProbe": check, "livenessProbe": check | {"failureThreshold": 10}})


def lives(agent: Agent) -> dict[str, tuple[Any, ...]]:
    """Of each pod: readiness, the time since when, restarts, and the containers' IDs."""
    return {name: life(one["status"]) for name, one in agent.pods().items()}


def life(status: dict[str, Any]) -> tuple[Any, ...]:
    ready = [(c["status"], c["lastTransitionTime"]) for c in status.get("conditions", ()) if c["type"] == "Ready"]
    states = [(c["restartCount"], c.get("containerID"), c["ready"]) for c in status.get("containerStatuses", ())]
    return (*ready, *states)


def release_of(agent: Agent) -> object:
    with Client(agent.run_dir) as client:
        return client.ask("pleg", Describe()).state.get("release", "former")


def all_ready(agent: Agent) -> bool:
    found = lives(agent)
    return len(found) == PODS and all(one and one[0][0] == "True" for one in found.values())


@pytest.mark.timeout(900)
def test_pods_and_clients_notice_no_upgrade_there_and_back(agent: Agent, other: Path) -> None:
    for number in range(PODS):
        agent.write(f"web{number}", probed(f"web{number}"))
    wait_for(lambda: all_ready(agent), 30 + 10 * PODS, "every pod is ready")
    before, pids = lives(agent), {name: row["pid"] for name, row in agent.rows().items()}
    with Traffic(agent.port) as traffic:
        there = upgrade(agent, "--to", str(other))
        assert there.returncode == 0, there.stderr + agent.log.read_text()[-3000:]
        assert release_of(agent) == "other"
        back = upgrade(agent, "--to", str(ROOT))
        assert back.returncode == 0, back.stderr + agent.log.read_text()[-3000:]
    assert release_of(agent) == "former"
    assert traffic.refused == []
    assert traffic.answered > 10
    assert lives(agent) == before
    after = {name: row["pid"] for name, row in agent.rows().items()}
    assert {name for name in pids if after[name] == pids[name]} == {"supervisor"}
    assert not [name for name, row in agent.rows().items() if row["last_death"]]


def upgrade(agent: Agent, *arguments: str) -> Any:
    line = [sys.executable, "-m", "supervisor", "upgrade", *arguments, "--run-dir", str(agent.run_dir)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=400)


@pytest.mark.parametrize(
    ("path", "before", "after", "problem"),
    [
        (
            "actors/eviction/actor.py",
            "    async def rebuild(self) -> None:",
            "    async def rebuild(self) -> None:\n        raise KeyError('new')\n\n    async def old(self) -> None:",
            "KeyError: 'new'",
        ),
        (
            "supervisor/core/daemon.py",
            "class Daemon:",
            "raise ImportError('not this time')\nclass Daemon:",
            "not this time",
        ),
        (
            "supervisor/core/daemon.py",
            "        if upgrade is not None:\n            upgrade.begin(self)",
            "        raise RuntimeError('no daemon')",
            "no daemon",
        ),
    ],
    ids=["an actor fails its trial", "the supervisor does not start", "the supervisor fails with children taken over"],
)
@pytest.mark.timeout(400)
def test_former_release_comes_back(agent: Agent, other: Path, path: str, before: str, after: str, problem: str) -> None:
    change(other / path, before, after)
    pid = agent.rows()["supervisor"]["pid"]
    found = upgrade(agent, "--to", str(other))
    assert found.returncode == 1
    assert problem in found.stderr, found.stderr + agent.log.read_text()[-3000:]
    wait_for(agent.all_ready, 60, "every actor is ready again")
    assert agent.rows()["supervisor"]["pid"] == pid
    assert release_of(agent) == "former"
    agent.kill_actors("pleg")


def test_broken_releases_are_refused_before_anything_changes(agent: Agent, other: Path, tmp_path: Path) -> None:
    pids = {name: row["pid"] for name, row in agent.rows().items()}
    (other / "actors/pleg/actor.py").write_text("this is no Python\n")
    (tmp_path / "empty").mkdir()
    for place, problem in ((other, "actor pleg cannot be imported: SyntaxError"), (tmp_path / "empty", "neither")):
        found = upgrade(agent, "--to", str(place))
        assert found.returncode == 1
        assert problem in found.stderr
    assert {name: row["pid"] for name, row in agent.rows().items()} == pids


def test_check_says_what_would_happen_and_does_nothing(agent: Agent, other: Path) -> None:
    pids = {name: row["pid"] for name, row in agent.rows().items()}
    found = upgrade(agent, "--check", "--to", str(other))
    assert "then restart, one by one:" in found.stdout
    assert "pod_workers, " in found.stdout
    assert {name: row["pid"] for name, row in agent.rows().items()} == pids


def test_the_supervisor_itself_judges_a_release(agent: Agent, tmp_path: Path) -> None:
    pids = {name: row["pid"] for name, row in agent.rows().items() if name != "forkserver"}
    python = tmp_path / "python"
    python.write_bytes(b"neither ELF nor a script")
    python.chmod(0o757)
    order = StartUpgrade(python=str(python), place=str(tmp_path))
    with Client(agent.run_dir) as client:
        with pytest.raises(Refused, match="has mode 0757"):
            client.ask("supervisor", order)
        python.chmod(0o755)
        client.ask("supervisor", order)
    wait_for(lambda: f"did not start: cannot execute {python}" in verdict(agent), 60, "the exec has failed")
    wait_for(agent.all_ready, 60, "every actor is ready")
    assert {name: row["pid"] for name, row in agent.rows().items() if name != "forkserver"} == pids
    agent.kill_actors("pleg")


def verdict(agent: Agent) -> str:
    try:
        with Client(agent.run_dir) as client:
            return client.ask("supervisor", GetUpgrade(), 2.0).verdict
    except (CannotReach, ActorDead, AskTimeout):  # it executes its next self
        return ""
