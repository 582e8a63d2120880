"""Upgrades of a running agent there and back, under traffic, beside pods with probes."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import yaml

from proto.agent.actor import Describe
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, pod
from tests.harness import wait_for

ROOT = Path(__file__).resolve().parents[3]
PODS = int(os.environ.get("NODEVISOR_UPGRADE_PODS", "6"))
"""30 before a release."""


def another_release(place: Path) -> Path:
    """Copy this release to `place`; its pleg says that it is another."""
    for package in ("actors", "supervisor", "proto"):
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    change(place / "actors/pleg/actor.py", "        return {", '        return {"release": "other", ')
    return place


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def serving(agent: Agent) -> None:
    """Let the kubelet API answer any client."""
    config = yaml.safe_load(agent.config.read_text())
    config["authentication"] = {"anonymous": {"enabled": True}, "webhook": {"enabled": False}}
    config["authorization"] = {"mode": "AlwaysAllow"}
    agent.config.write_text(yaml.safe_dump(config))


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


def all_ready(agent: Agent, pods: int) -> bool:
    found = lives(agent)
    return len(found) == pods and all(one and one[0][0] == "True" for one in found.values())


def there_and_back(agent: Agent, other: Path, pods: int = PODS) -> int:
    """Upgrade to the other release and back. Fails when a pod or a client notices. Returns the answered requests."""
    for number in range(pods):
        agent.write(f"web{number}", probed(f"web{number}"))
    wait_for(lambda: all_ready(agent, pods), 30 + 10 * pods, "every pod is ready")
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
    return traffic.answered


def upgrade(agent: Agent, *arguments: str) -> Any:
    line = [sys.executable, "-m", "supervisor", "upgrade", *arguments, "--run-dir", str(agent.run_dir)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=400)
