"""An agent that is a node of a real API server of its own, and what may be compared between the two and the runtime."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml

from actors._cri.errors import CriError
from actors._kube.errors import ApiError
from proto.agent.actor import Describe
from proto.pods.status import ListPods
from proto.v1 import PodStatus, from_dict, to_dict
from proto.wire.errors import ActorError
from tests.agent.agent import Agent
from tests.agent.changing import cgroups, content
from tests.agent.embedded import embedded_agent
from tests.agent.faults import Eye
from tests.containerd import ContainerdInstance
from tests.controlplane import ControlPlane
from tests.harness import wait_for

EVIDENCE = "NODEVISOR_EVIDENCE"
PODS = "/api/v1/namespaces/default/pods"
MIRROR = "kubernetes.io/config.mirror"
DROPPED = {"observedGeneration", "hostIPs", "resources", "allocatedResources", "volumeMounts", "user"}
"""Fields of a pod's status that a server of 1.20 does not have."""


class Joined:
    """One agent on one control plane. `cp` is the administrator."""

    def __init__(self, agent: Agent, control_plane: ControlPlane) -> None:
        self.agent, self.cp, self.eye = agent, control_plane, Eye(agent)
        self.node = agent.node

    # As a user of the API

    def create(self, manifest: dict[str, Any]) -> None:
        """A pod, bound to the node."""
        spec = {"nodeName": self.node, "tolerations": [{"operator": "Exists"}], **manifest["spec"]}
        self.cp.call("POST", PODS, manifest | {"spec": spec})

    def delete(self, name: str, grace_s: int | None = None) -> None:
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        self.cp.call("DELETE", f"{PODS}/{name}", options)

    def stored(self) -> dict[str, dict[str, Any]]:
        """The node's pods as the API server has them, by name."""
        try:
            items = self.cp.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.node}")["items"]
        except ApiError:
            return {}
        return {one["metadata"]["name"]: one for one in items}

    # Comparing

    def differences(self) -> dict[str, Any]:
        """Return pod to the differences between API server, agent and runtime; empty when they agree."""
        stored = self.stored()
        own = {one.metadata.name: one for one in self.eye.client.ask("status", ListPods(), 5.0).pods}
        running = {identity for identity, (_, state) in self.agent.containers().items() if state == "running"}
        found: dict[str, Any] = {}
        for name in stored.keys() | own.keys():
            if name not in stored or name not in own:
                found[name] = "the API server has it only" if name in stored else "the agent has it only"
                continue
            there, here = comparable(stored[name]["status"]), comparable(to_dict(own[name].status))
            if there != here:
                found[name] = {key: (there.get(key), here.get(key)) for key in there if there.get(key) != here.get(key)}
        said = {
            one["containerID"].partition("://")[2]: name
            for name, pod in stored.items()
            for one in _containers(pod["status"])
            if "running" in one["state"]
        }
        for identity in said.keys() ^ running:
            found[identity] = f"running is said of {said[identity]}" if identity in said else "runs, and is not said to"
        return found

    def converged(self, timeout_s: float, what: str = "") -> None:
        """Wait until all three agree."""

        def agreed() -> bool:
            try:
                return bool(self.eye.actors()) and not self.differences()
            except (ActorError, CriError):  # status has just been killed, or the runtime, and it is not noticed yet
                return False

        try:
            wait_for(agreed, timeout_s)
        except AssertionError:
            found = json.dumps(self.differences(), indent=1, default=str)
            raise AssertionError(f"{what} in {timeout_s:g} s: {found}; {self.evidence()}") from None

    def evidence(self) -> str:
        """Save the agent's log, its actors' states and deaths, and the API server's pods; return the place.

        It is below $NODEVISOR_EVIDENCE. Without that, return the log's path and a hint.
        """
        if not (kept := os.environ.get(EVIDENCE)):
            return f"log: {self.agent.log}; to keep what explains it set {EVIDENCE}=DIR"
        directory = Path(kept, self.agent.dir.name)
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.agent.log, directory)
        for source in (self.agent.run_dir / "deaths", self.agent.root_dir / "nodevisor"):
            shutil.copytree(source, directory / source.name, dirs_exist_ok=True, ignore=_no_files)
        looks: dict[str, Callable[[], Any]] = {
            "actors": lambda: {name: self._state(name) for name in self.eye.actors()},
            "api-pods": self.stored,
            "runtime": self.agent.containers,
            "sandboxes": self.agent.sandboxes,
            "cgroups": self._processes,
        }
        for name, look in looks.items():
            try:
                found = look()
            except (ActorError, CriError) as error:  # it may be what went wrong
                found = str(error)
            (directory / f"{name}.json").write_text(json.dumps(found, indent=1, default=str))
        return f"evidence: {directory}"

    def _processes(self) -> dict[str, list[str]]:
        """Return cgroup of the agent's pods to the process IDs in it."""
        tops = cgroups(self.agent.dir.name)
        return {at: content(Path(at, "cgroup.procs")).decode().split() for top in tops for at, _, _ in os.walk(top)}

    def _state(self, name: str) -> Any:
        try:
            return self.eye.client.ask(name, Describe(), 5.0).state
        except ActorError as error:
            return str(error)


def _no_files(directory: str, names: list[str]) -> set[str]:
    """Pipes and sockets: copying one would wait for its other end, or fail."""
    return {name for name in names if not (path := Path(directory, name)).is_file() and not path.is_dir()}


def _containers(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def comparable(status: dict[str, Any]) -> dict[str, Any]:
    """A status with its conditions by type, without what this server may not know."""
    plain = to_dict(from_dict(PodStatus, status))
    plain["conditions"] = {one["type"]: one for one in plain.get("conditions", ())}
    found: dict[str, Any] = _without_dropped(plain)
    return found


def _without_dropped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_dropped(one) for key, one in value.items() if key not in DROPPED}
    return [_without_dropped(one) for one in value] if isinstance(value, list) else value


@contextmanager
def joined(containerd: ContainerdInstance, name: str, *flags: str, **config: Any) -> Iterator[Joined]:
    """A started agent that is Ready in a control plane of its own; `config` goes into its KubeletConfiguration."""
    with ControlPlane() as control_plane, closing(Agent(containerd, name)) as agent:
        agent.config.write_text(json.dumps(yaml.safe_load(agent.config.read_text()) | config))
        agent.start("--kubeconfig", str(control_plane.kubeconfig(name)), *flags, wait=False)
        one = Joined(agent, control_plane)
        with closing(one.eye.client):
            wait_for(lambda: node_ready(control_plane, name), 60, f"the node is Ready; log: {agent.log}")
            wait_for(one.eye.all_ready, 30, "every actor in service")
            yield one


@contextmanager
def embedded_node(prepare: Callable[[Agent], object] = lambda _: None) -> Iterator[Joined]:
    """The same with its own runtime, and with faults. Delete the API's pods before the end."""

    def join(agent: Agent) -> None:
        prepare(agent)
        agent.flags += ["--kubeconfig", str(plane.kubeconfig(agent.node))]

    with ControlPlane() as plane, embedded_agent("--fault-injection", prepare=join, wait=False) as agent:
        one = Joined(agent, plane)
        with closing(one.eye.client):
            wait_for(lambda: node_ready(plane, agent.node), 90, f"the node is Ready; log: {agent.log}")
            wait_for(one.eye.all_ready, 30, "every actor in service")
            yield one


def node_ready(control_plane: ControlPlane, name: str) -> bool:
    node = control_plane.get(f"/api/v1/nodes/{name}") or {}
    return any(
        one["type"] == "Ready" and one["status"] == "True" for one in node.get("status", {}).get("conditions", ())
    )


class Repeated:
    """`function` again and again in a thread, until `close`. What it raises fails the test there."""

    def __init__(self, function: Any, period_s: float) -> None:
        self._function, self._period_s = function, period_s
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                self._function()
            except BaseException as error:
                self._error = error
                return

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error
