"""A cluster of one node: a real control plane with its controllers and scheduler, our agent, and kubectl."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.agent.agent import Agent, container
from tests.agent.changing import cgroups, processes
from tests.controlplane import ControlPlane
from tests.harness import wait_for

SLOW_S = 240.0
"""For thirty pods on a machine that does other things, too."""


class Cluster:
    """A user's actions and views of the cluster, in the namespace `default` unless stated otherwise."""

    def __init__(self, plane: ControlPlane, agent: Agent) -> None:
        self.plane = plane
        self.agent = agent
        self.name = agent.node

    def close(self) -> None:
        """The agent ends, and the cluster is told that the node is gone, and its pods with it."""
        self.agent.close()
        # Unchecked: a test that has failed may have left no server that could be told.
        self.kubectl("delete", "node", self.name, "--ignore-not-found", check=False)
        self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", check=False)

    def start(self, *, wait: bool = True) -> None:
        """Start the agent; with `wait` until the node is Ready."""
        self.agent.start("--kubeconfig", str(self.plane.kubeconfig(self.name)), wait=False)
        if wait:
            wait_for(
                lambda: is_ready(self.plane.get(f"/api/v1/nodes/{self.name}") or {}), 60, f"Ready; {self.agent.log}"
            )
            wait_for(self.agent.all_ready, 30, f"in service; log: {self.agent.log}")

    def kubectl(
        self, *arguments: str, stdin: str = "", check: bool = True, timeout_s: float = 120, program: str = "kubectl"
    ) -> str:
        """Its output; fails the test with what it says."""
        done = subprocess.run(
            [program, "--kubeconfig", str(self.plane.admin), *arguments],
            input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s, env=self._environment(),
        )  # fmt: skip
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def begun(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """kubectl while it runs, with its output in `stdout`. It is killed at the end if it has not ended."""
        command = ["kubectl", "--kubeconfig", str(self.plane.admin), *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._environment()) as process:
            try:
                yield process
            finally:
                process.kill()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECACHEDIR": str(self.plane.dir / "kubectl"), "HOME": str(self.plane.dir)}

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def pods(self, selector: str = "") -> dict[str, dict[str, Any]]:
        """Return the pods by name."""
        found = self.kubectl("get", "pods", "-o", "json", *(["-l", selector] if selector else []))
        return {one["metadata"]["name"]: one for one in json.loads(found)["items"]}

    def pod(self, name: str) -> dict[str, Any]:
        """Return the object of the API server; empty when there is none."""
        found: dict[str, Any] = self.plane.get(f"/api/v1/namespaces/default/pods/{name}") or {}
        return found

    def wait_ready(self, selector: str, count: int, timeout_s: float = 90) -> dict[str, dict[str, Any]]:
        """Wait until there are so many pods and each is Ready; the pods."""

        def ready() -> dict[str, dict[str, Any]]:
            found = self.pods(selector)
            return found if len(found) == count and all(map(is_ready, found.values())) else {}

        pods: dict[str, dict[str, Any]] = wait_for(ready, timeout_s, f"{count} of {selector}; log: {self.agent.log}")
        return pods

    def wait_gone(self, selector: str, timeout_s: float = 90) -> None:
        """Wait until there is no pod of those."""
        wait_for(lambda: not self.pods(selector), timeout_s, f"{selector} gone; log: {self.agent.log}")

    def running(self, name: str) -> dict[str, str]:
        """ID to pod/container of what runs of the pods whose names begin so."""
        return {identity: one for identity, one in self.agent.running().items() if one.startswith(name)}

    def reboot(self) -> None:
        """Simulate a loss of power: kill all processes of the agent and of pods. The caller starts the agent."""
        assert self.agent.process is not None
        if self.agent.process.poll() is None:
            self.agent.kill()
        wait_for(lambda: not _alive(self.agent), 20, "the actors are gone")
        for pid in {pid for top in cgroups(self.agent.dir.name) for pid in processes(top)}:
            with contextlib.suppress(ProcessLookupError):  # it has ended with the one before
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.agent.running(), 30, "the containers are gone")


def _alive(agent: Agent) -> bool:
    """Return True while a process of this agent runs. Its log tells it: an actor's command line is its name."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/2") == str(agent.log):
                return True
    return False


def is_ready(pod: dict[str, Any]) -> bool:
    """A pod or a node, by its condition, and not on its way out."""
    conditions = pod.get("status", {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def template(app: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod template without a service account's token, which ends at once when it is told to."""
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": list(containers) or [container("c")],
            **spec,
        },
    }


def workload(kind: str, name: str, pods: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A Deployment, a StatefulSet, a DaemonSet, a Job; `pods` is a template."""
    selector = {} if kind == "Job" else {"selector": {"matchLabels": pods["metadata"]["labels"]}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": pods, **selector, **spec},
    }
