"""The machine of a whole agent shuts down: pods end first, the API server has their last word, and they come back."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.agent import Agent, condition, container, pod
from tests.agent.embedded import embedded_agent
from tests.agent.node.test_node import condition as node_condition
from tests.containerd import ContainerdInstance
from tests.controlplane import ControlPlane
from tests.harness import wait_for
from tests.node.fake_logind import FakeLogind

pytestmark = pytest.mark.timeout(300)

NAME = "goes-down"
NODE = f"/api/v1/nodes/{NAME}"
PODS = "/api/v1/namespaces/default/pods"
MESSAGE = "Pod was terminated in response to imminent node shutdown."


def of_api(name: str) -> dict[str, Any]:
    spec = pod(name, container("c"), nodeName=NAME, automountServiceAccountToken=False)
    spec["spec"]["tolerations"] = [{"operator": "Exists"}]
    return spec


def start(agent: Agent, control_plane: ControlPlane) -> None:
    agent.start("--kubeconfig", str(control_plane.kubeconfig(NAME)), wait=False)
    wait_for(lambda: node_condition(control_plane.get(NODE), "Ready") == "True", 60, f"Ready; log: {agent.log}")


def both_ready(agent: Agent) -> bool:
    return [condition(agent.pod(name), "Ready") for name in ("web", "dns")] == ["True", "True"]


@pytest.mark.needs("dbus-daemon")
def test_standalone_pods_end_by_priority_and_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "podCIDR": "10.9.0.0/24",
        "shutdownGracePeriodByPodPriority": [
            {"priority": 0, "shutdownGracePeriodSeconds": 20},
            {"priority": 2_000_000_000, "shutdownGracePeriodSeconds": 4},
        ],
    }
    stubborn = container("c", "trap : TERM; while :; do sleep 1; done")
    (tmp_path / "10-shutdown.conf").write_text(yaml.safe_dump(configuration))
    with FakeLogind() as logind:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", logind.address)
        with embedded_agent("--config-dir", str(tmp_path)) as agent:
            agent.write("web", pod("web", container("c"), priority=0))
            agent.write("dns", pod("dns", stubborn, priority=2_000_001_000, terminationGracePeriodSeconds=6))
            wait_for(lambda: both_ready(agent), 60, f"they run; log: {agent.log}")
            wait_for(logind.held, 20, "the lock is held")
            logind.shutdown(True)
            wait_for(lambda: not logind.held(), 40, f"the machine may go; log: {agent.log}")
            assert agent.running() == {}
            # The last one was killed at the end of the last grace period.
            assert {name: one["status"].get("reason") for name, one in agent.pods().items()} == {
                "web": "Terminated",
                "dns": "Terminated",
            }
            order = re.findall(r"ending 1 pods of priority (\d+)", agent.log.read_text())
            assert order == ["0", "2000000000"]
            agent.stop()
            logind.under_way = False
            agent.start()
            wait_for(lambda: both_ready(agent), 60, f"they run again; log: {agent.log}")


def test_pods_end_before_the_machine_and_static_ones_return(
    containerd: ContainerdInstance, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeLogind() as logind, closing(Agent(containerd, NAME)) as agent:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", logind.address)
        wanted = {"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"}
        agent.config.write_text(json.dumps(yaml.safe_load(agent.config.read_text()) | wanted))
        agent.write("fixed", pod("fixed"))
        start(agent, control_plane)
        control_plane.call("POST", PODS, of_api("going"))
        wait_for(lambda: condition(control_plane.get(f"{PODS}/going") or {}, "Ready") == "True", 60, "the API's pod")
        wait_for(lambda: condition(agent.pod("fixed"), "Ready") == "True", 60, "the static pod")
        wait_for(logind.held, 20, "the lock is held")

        logind.shutdown(True)
        wait_for(lambda: not logind.held(), 40, f"the machine may go; log: {agent.log}")
        assert agent.running() == {}
        status = control_plane.call("GET", f"{PODS}/going")["status"]
        assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Terminated", MESSAGE)
        disruption = next(one for one in status["conditions"] if one["type"] == "DisruptionTarget")
        assert (disruption["status"], disruption["reason"]) == ("True", "TerminationByKubelet")
        # The machine waits for the last words of its pods, not for its own.
        wait_for(lambda: node_condition(control_plane.call("GET", NODE), "Ready") == "False", 20, "not Ready")

        control_plane.call("POST", PODS, of_api("late"))
        late = wait_for(
            lambda: (control_plane.get(f"{PODS}/late") or {}).get("status", {}).get("reason"), 30, "turned away"
        )
        assert late == "NodeShutdown"

        agent.stop()
        logind.under_way = False
        start(agent, control_plane)
        wait_for(lambda: condition(agent.pod("fixed"), "Ready") == "True", 60, f"it runs again; log: {agent.log}")
        assert control_plane.call("GET", f"{PODS}/going")["status"]["phase"] == "Failed"
        assert {name for _, name in agent.running().items()} == {f"fixed-{NAME}/c"}
    for name in ("going", "late"):
        control_plane.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
