"""An API server whose etcd comes back empty: the node joins anew, and only an operator has ended what runs."""

from __future__ import annotations

import shutil

import pytest

from actors._kube.errors import Conflict
from tests.agent.agent import pod
from tests.agent.joined import Joined, joined
from tests.containerd import ContainerdInstance
from tests.controlplane.binaries import API_SERVER, ETCD
from tests.harness import wait_for

pytestmark = [pytest.mark.usefixtures("own_control_plane"), pytest.mark.timeout(300)]

NODE = "orphaned"
WRITES = 200
"""More than a new cluster makes by itself: its versions must not reach ours while we look."""


def let_versions_grow(cluster: Joined) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    stored = cluster.cp.call("POST", path, {"metadata": {"name": "counter"}})
    for number in range(WRITES):
        try:
            stored = cluster.cp.call("PUT", f"{path}/counter", stored | {"data": {"n": str(number)}})
        except Conflict:
            stored = cluster.cp.call("GET", f"{path}/counter")


def test_no_pod_ends_until_an_operator_says_so(containerd: ContainerdInstance) -> None:
    with joined(containerd, NODE) as cluster:
        agent, plane = cluster.agent, cluster.cp
        cluster.create(pod("lost"))
        agent.write("fixed", pod("fixed"))
        wait_for(lambda: len(agent.running()) == 2 and f"fixed-{NODE}" in cluster.stored(), 60, "pods and mirror pod")
        let_versions_grow(cluster)
        cluster.create(pod("last"))
        wait_for(lambda: len(agent.running()) == 3, 60)
        before = agent.running()
        node = plane.call("GET", f"/api/v1/nodes/{NODE}")["metadata"]["uid"]

        plane.stop(API_SERVER)
        plane.stop(ETCD)
        shutil.rmtree(plane.dir / "etcd")
        plane.start_etcd()
        plane.start_api()
        found = wait_for(lambda: plane.get(f"/api/v1/nodes/{NODE}"), 60, "the node is registered anew")
        assert found["metadata"]["uid"] != node
        wait_for(lambda: "gone back in time" in agent.log.read_text(), 150, f"it is told; log: {agent.log}")
        wait_for(lambda: f"fixed-{NODE}" in cluster.stored(), 60, "a mirror pod again")
        cluster.create(pod("new"))
        wait_for(lambda: any(one.startswith("new/") for one in agent.running().values()), 60, "the node serves")
        assert before.items() <= agent.running().items()

        (agent.root_dir / "nodevisor" / "config-api.json").unlink()
        agent.command("restart", "config")
        names = {"new/c", f"fixed-{NODE}/c"}
        wait_for(lambda: set(agent.running().values()) == names, 60, "what the server does not know is ended now")
