"""A node that comes back from a loss of power while the API server is unreachable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.agent.agent import Agent, container, pod
from tests.agent.api.cluster import Cluster, template, workload
from tests.containerd import ContainerdInstance
from tests.controlplane import ControlPlane
from tests.harness import wait_for

NAME = "rebooted"


@pytest.fixture
def cluster(containerd: ContainerdInstance, full_control_plane: ControlPlane) -> Iterator[Cluster]:
    with closing(Cluster(full_control_plane, Agent(containerd, NAME))) as one:
        one.start()
        yield one


@pytest.mark.timeout(600)
def test_pods_run_from_the_checkpoint_and_outlive_the_outage(cluster: Cluster) -> None:
    done = template("done", container("c", "exit 0"), restartPolicy="Never")
    cluster.agent.write("fixed", pod("fixed"))
    cluster.apply(
        workload("Deployment", "kept", template("kept"), replicas=2),
        workload("Job", "done", done),
        *(pod(name, automountServiceAccountToken=False) for name in ("deleted", "edited")),
    )
    before = cluster.wait_ready("app in (kept, deleted, edited)", 4)
    cluster.kubectl("wait", "--for=condition=complete", "job/done", "--timeout=60s")
    wait_for(lambda: cluster.running("fixed"), 30)
    accepted = cluster.agent.root_dir / "nodevisor" / "api-pods"
    uids = {one["metadata"]["uid"] for one in before.values()}
    wait_for(lambda: {path.stem for path in accepted.glob("*.json")} == uids, 20, "what is over is not kept")

    cluster.agent.kill()
    cluster.kubectl("delete", "pod/deleted", "--force", "--grace-period=0")
    cluster.kubectl("set", "image", "pod/edited", "c=docker.io/library/busybox")
    cluster.plane.stop("kube-apiserver")
    cluster.reboot()
    cluster.start(wait=False)
    counts = {"kept": 2, "deleted": 1, "edited": 1, "fixed": 1}
    wait_for(lambda: {name: len(cluster.running(name)) for name in counts} == counts, 90, f"log: {cluster.agent.log}")
    assert not cluster.running("done")
    alone = cluster.agent.running()

    cluster.plane.start_api()
    wait_for(lambda: not cluster.running("deleted"), 60, "what was deleted meanwhile ends")
    wait_for(lambda: cluster.running("edited").keys() - alone.keys(), 60, "what was changed is made anew")
    after = cluster.wait_ready("app in (kept, edited)", 3)
    assert all(one["metadata"]["uid"] == before[name]["metadata"]["uid"] for name, one in after.items())
    for name in ("kept", "fixed"):
        assert cluster.running(name).keys() <= alone.keys(), f"{name} was not touched"

    def counts_told() -> set[int]:
        return {one["status"]["containerStatuses"][0]["restartCount"] for one in cluster.pods("app=kept").values()}

    wait_for(lambda: counts_told() == {1}, 60, "the server had seen them Ready before")
    assert not cluster.running("done")
    cluster.kubectl("delete", "deployment/kept", "job/done", "pod/edited", "--wait=false")
    cluster.wait_gone("app in (kept, edited)")
