"""A node that goes from us to the kubelet and back to us: our files of the first time are old by then."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proto.agent.actor import Describe
from proto.common import rfc3339
from proto.pods.pod_workers import EvictPod, ListPodWorkers
from proto.wire.errors import ActorError
from tests.agent.agent import Agent, condition, container, is_ready, pod
from tests.agent.joined import PODS, Joined, joined
from tests.agent.lifecycle.takeover.kubelet import serve_as_kubelet, wait_said_up
from tests.containerd import ContainerdInstance
from tests.controlplane.binaries import API_SERVER
from tests.harness import wait_for

pytestmark = [pytest.mark.usefixtures("own_control_plane"), pytest.mark.timeout(300)]

NODE = "returned"
PROBE = {"exec": {"command": ["test", "-e", "/tmp/ok"]}}
ALONE_S = 60.0
"""From the start of the agent."""


@pytest.fixture(scope="module")
def cluster(containerd: ContainerdInstance) -> Iterator[Joined]:
    with joined(containerd, NODE) as one:
        yield one


def start(cluster: Joined) -> None:
    cluster.agent.start("--kubeconfig", str(cluster.cp.kubeconfig(NODE)), wait=False)


def running(agent: Agent, *names: str) -> dict[str, str]:
    """Pod's name to the ID of its container."""
    found = {name.removesuffix("/c"): identity for identity, name in agent.running().items()}
    return {name: found[name] for name in names if name in found}


def create(cluster: Joined, *pods: dict[str, Any]) -> dict[str, str]:
    """Create pods, and wait until they run; name to UID."""
    names = [one["metadata"]["name"] for one in pods]
    for one in pods:
        cluster.create(one)
    wait_for(lambda: len(running(cluster.agent, *names)) == len(names), 60, f"{names} run; log: {cluster.agent.log}")
    cluster.converged(30)
    return {name: cluster.stored()[name]["metadata"]["uid"] for name in names}


def run_command(cluster: Joined, name: str, *command: str) -> None:
    cluster.agent.containerd.cri.exec_sync(running(cluster.agent, name)[name], list(command), 30).result()


def delete_all(cluster: Joined, *names: str) -> None:
    for name in names:
        cluster.delete(name, 0)
    wait_for(lambda: not cluster.agent.sandboxes(), 60, f"all gone; log: {cluster.agent.log}")


def end_as_kubelet(cluster: Joined, uid: str, *, sandbox: str) -> None:
    """End a pod, and remove its directory. The kubelet removes its sandbox up to a minute later."""
    cri = cluster.agent.containerd.cri
    (found,) = [one.id for one in cri.list_pod_sandbox().result() if one.metadata.uid == uid]
    cri.stop_pod_sandbox(found).result()
    if sandbox == "removed":
        cri.remove_pod_sandbox(found).result()
    shutil.rmtree(cluster.agent.root_dir / "pods" / uid)


def probes(cluster: Joined) -> int:
    with contextlib.suppress(ActorError):
        return int(cluster.eye.client.ask("probe", Describe(), 5.0).state["probes"])
    return 0


def records(agent: Agent) -> set[str]:
    return {path.stem for path in Path(agent.root_dir, "nodevisor", "api-pods").glob("*.json")}


def test_pods_that_a_kubelet_ended_do_not_run_offline(cluster: Joined) -> None:
    agent, plane = cluster.agent, cluster.cp
    uids = create(cluster, pod("removed"), pod("stopped"), pod("stays"), pod("crashed"))
    before = running(agent, "stays")
    wait_for(lambda: records(agent) == set(uids.values()), 20, "the accepted pods")
    assert agent.stop() == 0
    for name in ("removed", "stopped"):
        cluster.delete(name, 0)
        end_as_kubelet(cluster, uids[name], sandbox=name)
    run = agent.containerd.cri
    run.stop_container(running(agent, "crashed")["crashed"], 0).result()
    plane.stop(API_SERVER)

    logged = len(agent.log.read_text())
    start(cluster)
    try:
        wait_for(lambda: "2 pods accepted before have no directory" in agent.log.read_text()[logged:], ALONE_S)
        wait_for(lambda: running(agent, "crashed"), ALONE_S, "what only we served runs again")
        assert set(running(agent, *uids)) == {"stays", "crashed"}
    finally:
        plane.start_api()
    wait_for(lambda: records(agent) == {uids["stays"], uids["crashed"]}, 60, f"log: {agent.log}")
    assert running(agent, "stays") == before
    assert set(running(agent, *uids)) == {"stays", "crashed"}
    delete_all(cluster, "stays", "crashed")


def test_our_eviction_that_no_server_heard_of_is_old(cluster: Joined) -> None:
    """The agent ends between an eviction and the pod's end. A kubelet then ran the pod, and the server says so."""
    agent, stubborn = cluster.agent, "trap '' TERM; echo up; while :; do sleep 0.1; done"
    uids = create(cluster, pod("retried", container("c", stubborn), terminationGracePeriodSeconds=600))
    wait_said_up(agent, "retried", uids["retried"])
    before = running(agent, "retried")
    request = EvictPod(pod_uid=uids["retried"], reason="Evicted", message="m", grace_period_s=600)
    cluster.eye.client.ask("pod_workers", request, 10.0)
    assert agent.stop() == 0
    assert cluster.stored()["retried"]["status"]["phase"] == "Running"
    serve_as_kubelet(agent)
    start(cluster)

    def stages() -> list[tuple[str, bool]]:
        with contextlib.suppress(ActorError):
            rows = cluster.eye.client.ask("pod_workers", ListPodWorkers(), 5.0).pods
            return [(one.stage, one.evicted) for one in rows]
        return []

    wait_for(lambda: stages() == [("sync", False)], 60, f"log: {agent.log}")
    cluster.converged(30)
    agent.kill_actors("pod_workers", "status")
    wait_for(lambda: stages() == [("sync", False)], 60, f"log: {agent.log}")
    cluster.converged(30)
    assert is_ready(cluster.stored()["retried"])
    assert running(agent, "retried") == before
    delete_all(cluster, "retried")


def test_readiness_that_a_kubelet_found_stays(cluster: Joined) -> None:
    agent = cluster.agent
    create(cluster, pod("web", container("c", readinessProbe=PROBE | {"periodSeconds": 5})))
    results = Path(agent.root_dir, "nodevisor", "probe.json")
    wait_for(lambda: results.exists() and "readiness" in results.read_text(), 20, "it was probed")
    cluster.converged(30)
    assert not is_ready(cluster.stored()["web"])
    assert agent.stop() == 0
    run_command(cluster, "web", "touch", "/tmp/ok")
    status = cluster.stored()["web"]["status"]
    since = rfc3339.seconds(time.time() + 1)  # the next whole second: ours may be of this one
    for one in status["conditions"]:
        if one["type"] in ("Ready", "ContainersReady"):
            one.update(status="True", lastTransitionTime=since, reason=None, message=None)
    status["containerStatuses"][0]["ready"] = True
    cluster.cp.call("PATCH", f"{PODS}/web/status", {"status": status}, "application/merge-patch+json")

    start(cluster)
    wait_for(lambda: probes(cluster) > 0, 60, f"probed; log: {agent.log}")
    cluster.converged(30)
    (ready,) = [one for one in cluster.stored()["web"]["status"]["conditions"] if one["type"] == "Ready"]
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", since), f"log: {agent.log}"
    delete_all(cluster, "web")


def test_readiness_that_no_server_heard_of_stays(cluster: Joined) -> None:
    """Over a restart of the agent. No probe succeeds after it."""
    agent, plane = cluster.agent, cluster.cp
    probed = container("c", readinessProbe=PROBE | {"periodSeconds": 1, "failureThreshold": 1000})
    create(cluster, pod("late", probed))
    agent.write("fixed", pod("fixed", probed))
    names = ("late", f"fixed-{NODE}")
    wait_for(lambda: len(running(agent, *names)) == 2 and names[1] in cluster.stored(), 60, f"log: {agent.log}")
    cluster.converged(30)
    assert not any(is_ready(cluster.stored()[name]) for name in names)
    plane.stop(API_SERVER)
    try:
        for name in names:
            run_command(cluster, name, "touch", "/tmp/ok")
        wait_for(lambda: all(is_ready(agent.pod(one)) for one in ("late", "fixed")), 30, "ready")
        assert agent.stop() == 0
        for name in names:
            run_command(cluster, name, "rm", "/tmp/ok")
        start(cluster)
        wait_for(agent.all_ready, 60)
    finally:
        plane.start_api()
    wait_for(lambda: all(is_ready(cluster.stored()[name]) for name in names), 60, f"it is told; log: {agent.log}")
    cluster.converged(30)
    (agent.manifests / "fixed.yaml").unlink()
    delete_all(cluster, "late")


def test_rejected_static_pod_gets_a_chance_at_each_start(cluster: Joined) -> None:
    agent = cluster.agent
    port = {"ports": [{"containerPort": 18080, "hostPort": 18080}]}
    first, second = (pod(name, container("c", **port), hostNetwork=True) for name in ("first", "second"))
    agent.write("first", first)
    wait_for(lambda: running(agent, f"first-{NODE}"), 30)
    agent.write("second", second)

    def second_is(phase: str) -> bool:
        return bool(agent.pod("second").get("status", {}).get("phase") == phase)

    wait_for(lambda: second_is("Failed"), 30, "its port is taken")
    (agent.manifests / "first.yaml").unlink()
    wait_for(lambda: not agent.running(), 30, "the port is free")
    agent.kill_actors("pod_workers")
    wait_for(agent.all_ready, 30)
    agent.write("third", pod("third"))
    wait_for(lambda: running(agent, f"third-{NODE}"), 30, "it has decided on pods again")
    assert second_is("Failed"), "the agent goes on"
    assert not running(agent, f"second-{NODE}")
    assert agent.stop() == 0
    start(cluster)
    wait_for(lambda: second_is("Running") and running(agent, f"second-{NODE}"), 60, f"log: {agent.log}")
    wait_for(lambda: condition(agent.pod("second"), "Ready") == "True", 30)
    before, shown = running(agent, f"second-{NODE}"), agent.pod("second")["status"]["conditions"]
    wait_for(lambda: rfc3339.now() > max(one["lastTransitionTime"] for one in shown), 5, "a later time")
    later = {"fourth": ["status"], "fifth": ["pod_workers"], "sixth": ["pod_workers", "status"]}
    for name, killed in later.items():
        agent.kill_actors(*killed)
        agent.write(name, pod(name))
        wait_for(lambda name=name: is_ready(agent.pod(name)), 30, "it serves new pods again")
        assert second_is("Running")
        assert agent.pod("second")["status"]["conditions"] == shown, f"after a kill of {killed}"
    cluster.converged(30)
    assert running(agent, f"second-{NODE}") == before
    for name in ("second", "third", *later):
        (agent.manifests / f"{name}.yaml").unlink()
    wait_for(lambda: not agent.sandboxes(), 30, "gone")
