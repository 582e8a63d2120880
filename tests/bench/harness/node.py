"""A node of a real API server with a node agent at work, and the times of its pods."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import yaml

from actors._cri.client import Cri
from tests.agent.agent import Agent
from tests.bench.harness import pods, usage
from tests.containerd import ContainerdInstance
from tests.controlplane import ControlPlane
from tests.harness import wait_for

NAME = "bench"
NODE = f"/api/v1/nodes/{NAME}"
PODS = "/api/v1/namespaces/default/pods"
DEADLINE_S = 180.0
SETTLE_S = 2.0
"""For what the agent does after its start, which is not a pod's cost."""
Figures = dict[str, float]


class Node(NamedTuple):
    """The node NAME of the control plane with its agent at work."""

    pid: int
    plane: ControlPlane
    cri: Cri

    def create(self, name: str, **fields: Any) -> None:
        """Create a pod that is bound to the node. `fields` are of its spec."""
        pod = json.loads(pods.manifest(name))
        spec = {**pod["spec"], "nodeName": NAME, "tolerations": [{"operator": "Exists"}], **fields}
        self.plane.call("POST", PODS, pod | {"spec": spec})

    def ready(self) -> int:
        """The number of Ready pods."""
        return sum(map(is_ready, self.plane.call("GET", PODS)["items"]))

    def gone(self) -> bool:
        """True when the API server has no pod."""
        return not self.plane.call("GET", PODS)["items"]

    def cpu_s(self) -> float:
        """CPU seconds of the agent with its processes so far."""
        return sum(usage.cpu_s(self.pid).values())

    def pss_mb(self) -> float:
        """Its memory."""
        return sum(usage.pss_mb(self.pid).values())


def settled(node: Node) -> Node:
    """The node, once it is Ready and at rest."""
    wait_for(lambda: is_ready(node.plane.get(NODE) or {}), DEADLINE_S, "the node is Ready")
    time.sleep(SETTLE_S)
    return node


def up_and_gone(node: Node, count: int, idle_s: float = 0.0) -> tuple[Figures, Figures]:
    """Seconds until `count` pods are Ready, and gone from the API server; then the agent's own figures."""
    poll_s = 0.01 if count == 1 else 0.2
    names = [f"bench-{number}" for number in range(count)]
    cpu_0, began = node.cpu_s(), time.monotonic()
    for name in names:
        node.create(name)
    until(lambda: node.ready() == count, poll_s)
    up_s, cpu_1 = time.monotonic() - began, node.cpu_s()
    others: Figures = {"PSS, MB": node.pss_mb()}
    if idle_s:
        others["idle, % of a core"] = _idle(node, idle_s)
    cpu_2, began = node.cpu_s(), time.monotonic()
    for name in names:
        node.plane.call("DELETE", f"{PODS}/{name}", {})
    until(node.gone, poll_s)
    gone_s, cpu_3 = time.monotonic() - began, node.cpu_s()
    times = {"create to Ready, s": up_s, "delete to gone, s": gone_s}
    return times, {"CPU up, s": cpu_1 - cpu_0, "CPU gone, s": cpu_3 - cpu_2} | others


def _idle(node: Node, seconds: float) -> float:
    time.sleep(3.0)  # the last status writes
    before = node.cpu_s()
    time.sleep(seconds)
    return 100 * (node.cpu_s() - before) / seconds


def until(condition: Callable[[], bool], poll_s: float) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the pods take more than {DEADLINE_S:g} s")
        time.sleep(poll_s)


def is_ready(one: dict[str, Any]) -> bool:
    conditions = one.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def clear(plane: ControlPlane, cri: Cri) -> None:
    """Remove what a node agent leaves for later: dead sandboxes, and the Node."""
    for sandbox in cri.list_pod_sandbox().result():
        cri.stop_pod_sandbox(sandbox.id).result()
        cri.remove_pod_sandbox(sandbox.id).result()
    plane.call("DELETE", NODE)


@contextmanager
def joined_agent(plane: ControlPlane, containerd: ContainerdInstance, *flags: str) -> Iterator[Agent]:
    """The agent as the node NAME of a control plane."""
    with closing(Agent(containerd, NAME)) as agent:
        config = {"clientCAFile": str(plane.dir / "pki/ca.crt")}
        whole = yaml.safe_load(agent.config.read_text()) | shared(config)
        agent.config.write_text(yaml.safe_dump(whole))
        agent.start("--kubeconfig", str(plane.kubeconfig(NAME)), *flags)
        yield agent


def shared(x509: dict[str, str]) -> dict[str, Any]:
    """Fields of the KubeletConfiguration of both."""
    return {
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}, "x509": x509},
        "authorization": {"mode": "AlwaysAllow"},
        "maxPods": 1000,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }
