"""The guest as a node of a cluster, whose pods are not critical as static ones are: swap, and eviction for memory.

The API server runs on this machine. `make long` runs these tests: they need a control plane.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.controlplane.instance import ControlPlane
from tests.guest.guest import Guest
from tests.guest.selection import only_if_selected
from tests.guest.service.node import Node
from tests.guest.service.pods import READY_S, SWAP, memory, pod

pytestmark = only_if_selected("cluster")
PODS = "/api/v1/namespaces/default/pods"
FILL_BYTES = 700 << 20


class Cluster:
    """A control plane with the guest as its node."""

    def __init__(self, plane: ControlPlane, node: Node) -> None:
        self.plane, self.node = plane, node

    def run(self, *pods: dict[str, Any]) -> None:
        """Create pods of the node, and wait until they are Ready."""
        for one in pods:
            self.plane.call("POST", PODS, one | {"spec": one["spec"] | {"nodeName": "guest"}})
        self.node.wait_all_ready([one["metadata"]["name"] for one in pods], READY_S)


@pytest.fixture(scope="module")
def cluster(guest: Guest) -> Iterator[Cluster]:
    with ControlPlane() as plane, guest.reaches(plane.port), closing(Node(guest)) as node:
        guest.put("/etc/kubernetes/kubelet.conf", plane.kubeconfig("guest").read_bytes())
        guest.put("/etc/default/nodevisor", "NODEVISOR_FLAGS=--kubeconfig=/etc/kubernetes/kubelet.conf\n")
        guest.run("systemctl start systemd-oomd")
        with guest.swap():
            node.start(**SWAP)
            yield Cluster(plane, node)
            for one in plane.call("GET", PODS)["items"]:
                plane.call("DELETE", f"{PODS}/{one['metadata']['name']}?gracePeriodSeconds=0")
        guest.run("systemctl stop systemd-oomd; rm /etc/default/nodevisor")


def test_limited_swap_is_in_proportion_to_requests(cluster: Cluster) -> None:
    cluster.run(
        pod("burstable", resources=memory("256Mi", "512Mi")),
        pod("guaranteed", resources={"limits": {"memory": "64Mi", "cpu": "100m"}}),
        pod("besteffort"),
    )
    node = cluster.node
    wanted = int((256 << 20) / node.memory("MemTotal") * node.memory("SwapTotal"))
    assert wanted - 4096 < node.swap_limit("burstable") <= wanted
    assert node.swap_limit("guaranteed") == 0
    assert node.swap_limit("besteffort") == 0


def test_no_swap_and_an_eviction_beside_systemd_oomd(cluster: Cluster) -> None:
    """With another configuration. New containers have no swap, and memory runs short for real."""
    node = cluster.node
    available = node.memory("MemFree") + node.memory("Inactive(file)")  # as the kubelet counts it
    limit = available - FILL_BYTES // 2
    node.configure(
        failSwapOn=False, memorySwap={"swapBehavior": "NoSwap"}, evictionHard={"memory.available": str(limit)}
    )
    node.restart()
    cluster.run(pod("small", resources=memory("64Mi", "128Mi")))
    assert node.swap_limit("small") == 0
    before = _containers(node)
    volumes = [{"name": "fill", "emptyDir": {"medium": "Memory"}}]
    fill = f"dd if=/dev/zero of=/data/fill bs=1M count={FILL_BYTES >> 20}"
    greedy = pod("greedy", fill, volumes=volumes)
    cluster.plane.call("POST", PODS, greedy | {"spec": greedy["spec"] | {"nodeName": "guest"}})
    deadline = time.monotonic() + READY_S
    while (status := cluster.plane.get(f"{PODS}/greedy")["status"]).get("reason") != "Evicted":
        assert time.monotonic() < deadline, f"{status}\n{node.journal()}"
        time.sleep(1.0)
    assert status["phase"] == "Failed"
    assert "memory" in status["message"]
    assert {name: ids for name, ids in _containers(node).items() if name in before} == before
    assert node.guest.run("systemctl is-active systemd-oomd").stdout == "active\n"
    assert "Killed" not in node.guest.run("journalctl --no-pager -u systemd-oomd -o cat").stdout


def _containers(node: Node) -> dict[str, Any]:
    pods = {name: one for name, one in node.pods().items() if name != "greedy"}
    return {name: [one["containerID"] for one in found["status"]["containerStatuses"]] for name, found in pods.items()}
