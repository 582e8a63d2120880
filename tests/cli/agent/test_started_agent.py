"""`supervisor start` with every actor and no container runtime, and commands for it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.config.kubeletconfig.typed import decode, encode
from tests.cgroups import remove_cgroups
from tests.harness import wait_for
from tests.kubeletconfig.samples import EVERY, KUBEADM
from tests.ports import free_ports

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale that each machine has, without Python's exceptions for it."""


class Agent:
    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str, **environment: str) -> None:
        given = {
            "run-dir": f"{self.dir}/run",
            "root-dir": f"{self.dir}/root",
            "pod-logs-dir": f"{self.dir}/pods",
            "container-logs-dir": f"{self.dir}/containers",
            "container-runtime-endpoint": f"unix://{self.dir}/none.sock",
            "hostname-override": "node",
            "tune-kernel": "false",
            "healthz-port": "0",
            "pod-manifest-path": f"{self.dir}/manifests",
            "cgroup-root": f"/{self.dir.name}",
        }
        command = [sys.executable, "-m", "supervisor", "start", *(f"--{name}={value}" for name, value in given.items())]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *flags], stderr=log, env={"PATH": "/bin", **environment})
        wait_for(self.is_ready, 60, f"every actor ready; log: {self.log}")

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        done = self.command("ps", "-o", "json")
        return done.returncode == 0 and all(row["state"] == "ready" for row in json.loads(done.stdout))

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "supervisor", *arguments, "--run-dir", f"{self.dir}/run"]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)

    def end(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def agent(run_dir: Path) -> Iterator[Agent]:
    one = Agent(run_dir)
    yield one
    if one.process is not None and one.process.poll() is None:
        one.end()
    remove_cgroups(run_dir.name)


def shown(agent: Agent) -> dict[str, Any]:
    done = agent.command("config", "show", "--sources", "-o", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_kubeadm_configuration_starts_and_is_shown_unchanged(agent: Agent) -> None:
    file = agent.dir / "kubeadm.yaml"
    file.write_text(KUBEADM)
    agent.start(f"--config={file}", "--max-pods=20")
    found = shown(agent)
    written = yaml.safe_load(KUBEADM)
    for field in ("clusterDNS", "clusterDomain", "cgroupDriver", "rotateCertificates", "resolvConf"):
        assert found["configuration"][field] == written[field]
        assert found["sources"][field].startswith(f"{file}:")
    assert (found["configuration"]["maxPods"], found["sources"]["maxPods"]) == (20, "--max-pods")
    assert (agent.dir / "run/configuration.json").stat().st_mode & 0o777 == 0o600
    log = agent.log.read_text()
    assert "has no effect" not in log
    assert "Flag --max-pods has been deprecated" in log
    assert agent.end() == 0


def test_full_configuration_starts_and_is_shown_unchanged(agent: Agent) -> None:
    file = agent.dir / "every.yaml"
    file.write_text(EVERY)
    port, read_only_port = free_ports(2)
    ports = f"--port={port}", f"--read-only-port={read_only_port}"
    agent.start(f"--config={file}", "--cgroup-driver=cgroupfs", *ports)
    found = shown(agent)
    written = encode.plain(decode.decode(yaml.safe_load(EVERY)).config)
    merged = {"evictionHard"}  # with the default thresholds, as it asks for
    ours = [
        field
        for field, at in found["sources"].items()
        if at.startswith(f"{file}:") and field in written.keys() - merged
    ]
    assert {field: found["configuration"][field] for field in ours} == {field: written[field] for field in ours}
    assert len(ours) > 90


def test_healthz_reports_every_actor(agent: Agent) -> None:
    (port,) = free_ports(1)
    agent.start(f"--healthz-port={port}")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz?verbose", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    assert "[+]pod_workers ok" in lines
    assert lines[0] == "[+]ping ok"
    assert lines[-1] == "healthz check passed"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/configz", timeout=20) as answer:
        assert json.load(answer) == {"kubeletconfig": shown(agent)["configuration"]}


def test_paths_are_utf8_whatever_the_locale(agent: Agent) -> None:
    manifests = agent.dir / "größe"
    manifests.mkdir()
    (manifests / "pod.json").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "found"},
                "spec": {"containers": [{"name": "c", "image": "none.test/c:1"}]},
            }
        )
    )
    agent.start(f"--pod-manifest-path={manifests}", **ASCII)
    listed = agent.command("ask", "config", "ListSources")
    assert "default/found-node" in listed.stdout
    assert agent.end() == 0


def test_verbosity_of_one_actor_changes_while_it_runs(agent: Agent) -> None:
    agent.start("--logging-format=json")

    def lines(actor: str) -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in agent.log.read_text().splitlines() if line.startswith("{")]
        return [entry for entry in entries if entry["logger"] == actor]

    assert agent.command("verbosity", "probe", "4").returncode == 0
    assert agent.command("verbosity", "status", "0").returncode == 0
    assert agent.command("verbosity", "supervisor", "4").returncode == 0
    assert agent.command("verbosity", "nobody", "4").returncode == 1
    assert agent.end() == 0
    assert "verbosity is 4 now" in [entry["msg"] for entry in lines("probe") if entry.get("v") == 4]
    assert max(entry.get("v", 0) for entry in lines("volume")) == 2
    assert not lines("status")


def test_lock_is_released_on_contention(agent: Agent) -> None:
    lock = agent.dir / "lock"
    agent.start(f"--lock-file={lock}", "--exit-on-lock-contention")
    assert agent.process is not None
    # Waited for: the kernel may leave a line out when another lock ends between two reads of the file.
    wait_for(lambda: f":{lock.stat().st_ino} " in Path("/proc/locks").read_text(), 10, "it holds the lock")
    done = subprocess.run(
        ["flock", "--wait", "20", str(lock), "echo", "mine"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "mine\n"
    assert agent.process.wait(20) == 0
    assert "another process opened or removed lock file" in agent.log.read_text()


def test_path_that_is_no_utf8_is_one_line(tmp_path: Path) -> None:
    root = bytes(tmp_path) + b"/gr\xf6\xdfe"
    line: list[str | bytes] = [sys.executable, "-m", "supervisor", "start", b"--root-dir=" + root]
    line += [f"--run-dir={tmp_path}/run", f"--container-runtime-endpoint=unix://{tmp_path}/none.sock"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "gr\\udcf6\\udcdfe': it is not UTF-8; rename it\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("locale", [{}, ASCII], ids=["UTF-8", "ASCII"])
def test_service_manager_is_notified(agent: Agent, locale: dict[str, str]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(agent.dir / "notify"))
        heard: list[str] = []

        def listen() -> None:  # all the time: the kernel keeps ten messages for one who does not
            while message := manager.recv(4096):
                heard.extend(message.decode().splitlines())

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            agent.start(NOTIFY_SOCKET=str(agent.dir / "notify"), WATCHDOG_USEC="400000", **locale)
            wait_for(lambda: "READY=1" in heard, 20, "it is ready")
            heard.clear()
            wait_for(lambda: "WATCHDOG=1" in heard, 20, "the watchdog is fed")
            assert agent.end() == 0
            wait_for(lambda: "STOPPING=1" in heard, 20, "it has stopped")
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", manager.getsockname())
            listener.join()
