"""`python -m tests.bench.node_ready [STARTS]`: from the start of the agent to a Ready Node at a real API server.

The first start registers the Node, the others take it over. Each prints the node's calls to the API server with the
seconds since the start. A proxy records them, at the cost of one or two milliseconds for each call.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from actors._kube.connection.kubeconfig import load
from actors._kube.connection.session import Session
from tests.agent.agent import Agent
from tests.agent.joined import node_ready
from tests.containerd import ContainerdInstance, missing_requirements
from tests.controlplane import ControlPlane, missing_control_plane
from tests.harness import wait_for
from tests.kube.faulty_server import FaultyServer

NAME = "timed"
NODE = f"/api/v1/nodes/{NAME}"
TIMEOUT_S = 60.0


def main() -> int:
    """Run it; 1 when the machine lacks what it needs."""
    if problem := missing_requirements() or missing_control_plane():
        print(problem, file=sys.stderr)
        return 1
    starts = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    directory = Path(tempfile.mkdtemp(prefix="nvready-"))
    with (
        ContainerdInstance(directory) as containerd,
        ControlPlane() as plane,
        FaultyServer(Session(load(str(plane.kubeconfig(NAME))))) as proxy,
        closing(Agent(containerd, NAME)) as agent,
    ):
        kubeconfig = str(proxy.kubeconfig(directory / "kubeconfig"))
        for number in range(starts):
            _not_ready(plane)
            print(f"start {number + 1}: {'; '.join(_start(plane, proxy, agent, kubeconfig))}")
            agent.stop()
    return 0


def _start(plane: ControlPlane, proxy: FaultyServer, agent: Agent, kubeconfig: str) -> list[str]:
    proxy.calls.clear()
    began = time.monotonic()
    agent.start("--kubeconfig", kubeconfig, wait=False)
    wait_for(lambda: node_ready(plane, NAME), TIMEOUT_S, f"the node is Ready; log: {agent.log}")
    ready_s = time.monotonic() - began
    calls = [f"{one.method} {one.path} {one.at - began:.2f}" for one in list(proxy.calls) if "/nodes" in one.path]
    return [f"Ready after {ready_s:.2f} s", *calls]


def _not_ready(plane: ControlPlane) -> None:
    """Set the conditions that the node controller gives to a lost node."""
    if node := plane.get(NODE):
        patch = {"status": {"conditions": [one | {"status": "Unknown"} for one in node["status"]["conditions"]]}}
        plane.call("PATCH", f"{NODE}/status", patch, "application/strategic-merge-patch+json")


if __name__ == "__main__":
    sys.exit(main())
