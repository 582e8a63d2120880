"""A whole agent, as a user starts it, on a private containerd: `supervisor start` in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from actors._host.node.addresses import LOOPBACK, default_address
from proto.agent import registry
from proto.agent.actor import GetMetrics
from proto.agent.supervisor import ListActors
from proto.pods.status import ListPods
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.pods.pods import pod_list
from supervisor.cli.views import render
from supervisor.sockets.client import Client
from tests.cgroups import DRIVER, remove_cgroups
from tests.containerd import ContainerdInstance
from tests.harness import wait_for
from tests.ports import free_port
from tests.volume.devices import loops_below

ACTORS = registry.BASIC
"""Names of the actors of every agent."""


class Agent:
    """One agent and its directories. `stop` leaves pods running, `close` ends them and removes everything."""

    def __init__(self, containerd: ContainerdInstance, node: str = "vm", *, api: bool = False) -> None:
        """`api`: it also expects pods of an API server, for which `api_source.ApiSource` stands in."""
        self.module = "tests.agent.api.with_api" if api else "supervisor"
        self.containerd = containerd
        self.node = node
        self.dir = Path(tempfile.mkdtemp(prefix="nva-", dir="/tmp"))
        self.run_dir, self.root_dir, self.manifests = self.dir / "run", self.dir / "root", self.dir / "manifests"
        self.log = self.dir / "log"
        self.manifests.mkdir()
        self.config = self.dir / "config.yaml"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "podLogsDir": str(self.dir / "logs"),
                    "cgroupRoot": f"/{self.dir.name}",
                    "cgroupDriver": DRIVER,
                }
            )
        )
        self.port = free_port()
        """The server's, if the agent has one. Agents of other test processes have others."""
        self.process: subprocess.Popen[bytes] | None = None
        self.node_ip = LOOPBACK
        """Of the last start: a Node has no address of loopback."""
        self.flags: list[str] = []
        """Further ones, of every start."""

    def start(self, *flags: str, wait: bool = True) -> None:
        """Start the supervisor; with `wait` until every actor is ready."""
        in_cluster = any(str(flag).startswith("--kubeconfig") for flag in (*self.flags, *flags))
        self.node_ip = (default_address(4) if in_cluster else "") or LOOPBACK
        command = [
            sys.executable, "-m", self.module, "start",
            "--run-dir", self.run_dir, "--root-dir", self.root_dir, "--pod-manifest-path", self.manifests,
            "--container-runtime-endpoint", self.containerd.endpoint, "--hostname-override", self.node,
            "--container-logs-dir", self.dir / "container-logs", "--cert-dir", self.dir / "pki",
            "--node-ip", self.node_ip, f"--port={self.port}",
            "--tune-kernel=false", "--make-iptables-util-chains=false", "--healthz-port=0", "--config", self.config,
            *self.flags, *flags,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
        if wait:
            try:
                wait_for(self.all_ready, 120)
            except AssertionError as error:
                states = {name: row.get("state") for name, row in self.rows().items()}
                end = self.log.read_text(errors="replace")[-2000:]
                raise AssertionError(f"not every actor is ready: {error}; {states}; the log's end:\n{end}") from None

    def leave_stopped(self) -> None:
        """Have the supervisor of the next start leave a process that SIGSTOP stops to the watchdog."""
        path = self.dir / "supervisor.yaml"
        path.write_text("defaults: {stopped_deadline_s: 0}\n")
        self.flags += ["--supervisor-config", str(path)]

    def all_ready(self) -> bool:
        """Return True when every actor is ready. Fails the test at once when the supervisor has ended."""
        if self.process is not None and self.process.poll() is not None:
            end = self.log.read_text(errors="replace")[-2000:]
            raise AssertionError(f"the supervisor ended with {self.process.returncode}: {end}")
        rows = self.rows() if (self.run_dir / "control.sock").exists() else {}
        return all(rows.get(name, {}).get("state") == "ready" for name in ACTORS)

    def kill_actors(self, *names: str, number: signal.Signals = signal.SIGKILL, timeout_s: float = 40.0) -> None:
        """Signal these actors' processes, and wait until each has ended by it and its next incarnation is in service.

        That every actor is ready does not tell: right after a signal they still are.
        """
        before = wait_for(lambda: self._serving(names), timeout_s, f"{names} in service; log: {self.log}")
        for row in before.values():
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(row["pid"], number)

        def replaced() -> bool:
            now = self._serving(names)
            return bool(now) and all(now[name]["incarnation"] > row["incarnation"] for name, row in before.items())

        wait_for(replaced, timeout_s, f"{names} in service again; log: {self.log}")

    def _serving(self, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        """The rows of these actors once all of them are in service."""
        rows = {name: row for name, row in self.rows().items() if name in names and row["state"] == "ready"}
        return rows if len(rows) == len(names) else {}

    def command(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`supervisor ARGS --run-dir ...` as a user types it."""
        return subprocess.run(
            [sys.executable, "-m", "supervisor", *args, "--run-dir", str(self.run_dir)],
            capture_output=True, text=True, check=check, timeout=60,
        )  # fmt: skip

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the output of `ps -o json` by name; empty without an agent."""
        with contextlib.suppress(ActorError, ProtocolError), Client(self.run_dir) as client:
            rows = client.ask("supervisor", ListActors(with_memory=False)).rows
            return {row.name: render.fields(row) for row in rows}
        return {}

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the output of `pods -o json` by pod name without the node's; empty without an agent.

        It does not run the command: tests look often, and each run would start a Python process.
        """
        with contextlib.suppress(ActorError, ProtocolError), Client(self.run_dir) as client:
            shown = json.loads(render.json_text(pod_list(client.ask("status", ListPods()).pods)))
            return {item["metadata"]["name"].removesuffix(f"-{self.node}"): item for item in shown["items"]}
        return {}

    def samples(self, actor: str, metric: str) -> dict[tuple[str, ...], tuple[float, ...]]:
        """An actor's samples of a metric, by label values. A histogram's last number is the sum."""
        with Client(self.run_dir) as client:
            return dict(client.ask(actor, GetMetrics()).samples.get(metric, ()))

    def counts(self, actor: str, metric: str) -> dict[tuple[str, ...], float]:
        """The same in short: the value, or the number of observations."""
        found = self.samples(actor, metric)
        return {labels: sum(numbers[:-1]) if len(numbers) > 1 else numbers[0] for labels, numbers in found.items()}

    def pod(self, name: str) -> dict[str, Any]:
        return self.pods().get(name, {})

    def write(self, name: str, manifest: Any) -> Path:
        """A manifest file, written beside and moved in, as careful tools do."""
        path = self.manifests / f"{name}.yaml"
        temporary = self.dir / f"{name}.tmp"
        temporary.write_text(manifest if isinstance(manifest, str) else yaml.safe_dump(manifest))
        temporary.rename(path)
        return path

    def containers(self) -> dict[str, tuple[str, str]]:
        """Every container of the runtime: ID to (pod/name, state)."""
        states = ("created", "running", "exited", "unknown")
        return {
            one.id: (f"{one.labels['io.kubernetes.pod.name']}/{one.metadata.name}", states[one.state])
            for one in self.containerd.cri.list_containers().result()
        }

    def running(self) -> dict[str, str]:
        """ID to pod/name of what runs."""
        return {identity: name for identity, (name, state) in self.containers().items() if state == "running"}

    def sandboxes(self) -> list[str]:
        return [one.id for one in self.containerd.cri.list_pod_sandbox().result()]

    def stop(self) -> int:
        """SIGTERM to the supervisor; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """SIGKILL to the supervisor; its actors end by themselves."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the agent, every pod of the runtime, and remove the directories and cgroups."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
        self.containerd.remove_pods()
        for held in loops_below(self.dir):
            subprocess.run(["losetup", "-d", held], check=False)
        for mount in [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]:
            if mount.startswith(f"{self.dir}/"):
                subprocess.run(["umount", "-l", mount], check=False)
        remove_cgroups(self.dir.name)
        shutil.rmtree(self.dir, ignore_errors=True)


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A manifest; containers by `container()`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": list(containers) or [container("c")], **spec},
    }


SLEEP = "trap exit TERM; sleep 100000 & wait"


def container(name: str, script: str = SLEEP, **fields: Any) -> dict[str, Any]:
    """A busybox container that runs a shell script."""
    return {
        "name": name,
        "image": "docker.io/library/busybox:latest",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        **fields,
    }


def condition(item: dict[str, Any], kind: str) -> str:
    """A condition's status, empty when it is not there."""
    found = (one for one in item.get("status", {}).get("conditions", []) if one["type"] == kind)
    return next((one["status"] for one in found), "")


def is_ready(item: dict[str, Any]) -> bool:
    return condition(item, "Ready") == "True"


def state(item: dict[str, Any], name: str, which: str = "containerStatuses") -> dict[str, Any]:
    """{kind: {...}} of a container."""
    found = (one["state"] for one in item.get("status", {}).get(which, []) if one["name"] == name)
    return next(found, {})
