"""A node of a real API server: registered, Ready, its Lease renewed; killed actors and a server that goes away."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import yaml

from tests.agent.agent import Agent
from tests.containerd import ContainerdInstance
from tests.controlplane import ControlPlane
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)

NAME = "joiner"
NODE = f"/api/v1/nodes/{NAME}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NAME}"


@pytest.fixture(scope="module")
def joined(containerd: ContainerdInstance, control_plane: ControlPlane) -> Iterator[Agent]:
    with closing(Agent(containerd, NAME)) as agent:
        timing = {"nodeLeaseDurationSeconds": 4, "nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "5m"}
        agent.config.write_text(json.dumps(yaml.safe_load(agent.config.read_text()) | timing))
        agent.flags += [
            "--kubeconfig", str(control_plane.kubeconfig(NAME)), "--node-labels", "disk=fast",
            "--register-with-taints", "dedicated=ci:NoSchedule",
        ]  # fmt: skip
        agent.start(wait=False)
        wait_for(lambda: condition(control_plane.get(NODE), "Ready") == "True", 60, f"Ready; log: {agent.log}")
        wait_for(agent.all_ready, 30)
        yield agent


def _changes(before: Any, after: Any, path: str = "") -> dict[str, Any]:
    """Path to (before, after) of what differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = before.keys() | after.keys()
        pairs = {f"{path}.{key}": (before.get(key), after.get(key)) for key in keys}
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = {f"{path}[{index}]": pair for index, pair in enumerate(zip(before, after, strict=True))}
    else:
        return {} if before == after else {path: (before, after)}
    return {where: what for key, pair in pairs.items() for where, what in _changes(*pair, key).items()}


def condition(node: Any, kind: str) -> str:
    found = ((node or {}).get("status") or {}).get("conditions") or ()
    return next((one["status"] for one in found if one["type"] == kind), "")


def renewed(control_plane: ControlPlane) -> str:
    lease = control_plane.get(LEASE)
    return lease["spec"]["renewTime"] if lease else ""


def wait_renewed(control_plane: ControlPlane, times: int = 1) -> None:
    for _ in range(times):
        before = renewed(control_plane)
        wait_for(lambda before=before: renewed(control_plane) not in ("", before), 30, "the Lease is renewed")


def test_the_node_is_what_the_kubelet_would_write(joined: Agent, control_plane: ControlPlane) -> None:
    node = control_plane.call("GET", NODE)
    labels, status = node["metadata"]["labels"], node["status"]
    assert labels["kubernetes.io/hostname"] == NAME
    assert labels["disk"] == "fast"
    assert labels["kubernetes.io/os"] == labels["beta.kubernetes.io/os"] == "linux"
    assert labels["kubernetes.io/arch"] == labels["beta.kubernetes.io/arch"] == status["nodeInfo"]["architecture"]
    assert node["metadata"]["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"] == "true"
    assert {"key": "dedicated", "value": "ci", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert status["addresses"] == [
        {"type": "InternalIP", "address": joined.node_ip},
        {"type": "Hostname", "address": NAME},
    ]
    reasons = {one["type"]: (one["status"], one["reason"], one["message"]) for one in status["conditions"]}
    assert reasons == {
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        "KubeletConfigOk": ("True", "ConfigurationInForce", "the files' configuration is in force"),
        "KubeletDegraded": ("False", "ActorsServing", "all actors stay in service"),
        "KubeletStorageError": ("False", "StateWritable", "the root directory can be written"),
        "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
    }
    assert status["capacity"]["cpu"] == str(os.cpu_count())
    assert status["capacity"]["pods"] == status["allocatable"]["pods"] == "110"
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    assert status["nodeInfo"]["kernelVersion"] == os.uname().release
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": joined.port}}
    assert any("docker.io/library/busybox:latest" in image["names"] for image in status["images"])

    def said() -> set[str]:
        return {one["message"] for one in json.loads(joined.command("events", "-o", "json").stdout)["items"]}

    wait_for(lambda: f"Node {NAME} status is now: NodeReady" in said(), 20, "its event, which is told after it is so")


def test_the_lease_belongs_to_the_node_and_is_renewed(joined: Agent, control_plane: ControlPlane) -> None:
    wait_renewed(control_plane)
    lease, node = control_plane.call("GET", LEASE), control_plane.call("GET", NODE)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == (NAME, 4)
    owner = {"apiVersion": "v1", "kind": "Node", "name": NAME, "uid": node["metadata"]["uid"]}
    wait_for(lambda: control_plane.call("GET", LEASE)["metadata"].get("ownerReferences") == [owner], 10, "its owner")


def test_an_unchanged_status_is_not_written_again(joined: Agent, control_plane: ControlPlane) -> None:
    """Also fields that this server does not know make no difference."""
    wait_renewed(control_plane)
    for _ in range(3):
        before = control_plane.call("GET", NODE)
        wait_renewed(control_plane, 4)  # in which the status was looked at as often
        after = control_plane.call("GET", NODE)
        if after["status"]["capacity"] == before["status"]["capacity"]:
            break  # else tests of volumes have just changed the huge pages of this machine
    assert _changes(before, after) == {}


def test_foreign_writes_into_the_status_are_corrected(joined: Agent, control_plane: ControlPlane) -> None:
    patch = {"status": {"capacity": {"pods": "3"}}}
    control_plane.call("PATCH", f"{NODE}/status", patch, "application/merge-patch+json")
    wait_for(lambda: control_plane.call("GET", NODE)["status"]["capacity"]["pods"] == "110", 30, "capacity is ours")


def test_the_node_actor_killed_goes_on_where_it_was(joined: Agent, control_plane: ControlPlane) -> None:
    before = control_plane.call("GET", NODE)
    joined.kill_actors("node")
    wait_renewed(control_plane, 2)
    after = control_plane.call("GET", NODE)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    times = [
        {one["type"]: one["lastTransitionTime"] for one in node["status"]["conditions"]} for node in (before, after)
    ]
    assert times[0] == times[1]


def test_a_deleted_node_comes_back_with_the_next_agent(joined: Agent, control_plane: ControlPlane) -> None:
    before = control_plane.call("DELETE", NODE)["details"]["uid"]
    hint = "restart the agent to register it again"
    wait_for(lambda: hint in joined.log.read_text(), 30, "the node stays away")
    joined.kill_actors("node")
    wait_for(lambda: joined.log.read_text().count(hint) > 1, 30, "it stays away from the next actor, too")
    assert control_plane.get(NODE) is None
    joined.stop()
    joined.start(wait=False)
    node = wait_for(lambda: control_plane.get(NODE), 60, "the node is registered again")
    assert node["metadata"]["uid"] != before
    wait_for(lambda: condition(control_plane.get(NODE), "Ready") == "True", 60, "Ready again")
    wait_for(joined.all_ready, 30)


def test_a_server_that_was_away_finds_everything_as_it_was(joined: Agent, control_plane: ControlPlane) -> None:
    pids = {name: row["pid"] for name, row in joined.rows().items()}
    said = joined.log.read_text().count("cannot renew the Lease")
    control_plane.stop("kube-apiserver")
    wait_for(lambda: joined.log.read_text().count("cannot renew the Lease") > said, 60, "the loss is told")
    control_plane.start_api()
    wait_renewed(control_plane)
    assert condition(control_plane.call("GET", NODE), "Ready") == "True"
    assert {name: row["pid"] for name, row in joined.rows().items()} == pids
