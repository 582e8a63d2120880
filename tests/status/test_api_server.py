"""The actor's writes at a real API server: statuses, mirror pods and deletions."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actors._kube.errors import ApiError
from proto.agent.actor import GetMetrics
from proto.common import rfc3339
from proto.pods.status import Flush, ListPods
from proto.v1 import PodCondition, PodStatus, from_dict
from tests.harness import wait_for
from tests.kube.faulty_server import failure
from tests.status.cluster import HASH, MIRROR, PODS, SOURCE, Cluster, running, static

GOLDEN = json.loads((Path(__file__).parents[1] / "pod_workers/golden/pods.json").read_text())
"""By name, as the kubelet had them stored."""
AWAY = failure(503, "ServiceUnavailable")
UNKNOWN_IN_1_20 = {"observedGeneration", "hostIPs", "resources", "allocatedResources", "volumeMounts"}


def known(value: Any, *, server_knows: bool) -> Any:
    """Without nulls, and without the fields that a server of 1.20 drops, when this is one."""
    if isinstance(value, dict):
        return {
            key: known(one, server_knows=server_knows)
            for key, one in value.items()
            if one is not None and (server_knows or key not in UNKNOWN_IN_1_20)
        }
    return [known(one, server_knows=server_knows) for one in value] if isinstance(value, list) else value


def server_is_new(cluster: Cluster) -> bool:
    return int(cluster.cp.call("GET", "/version")["minor"].rstrip("+")) >= 36


def test_kubelet_statuses_are_stored_field_by_field(cluster: Cluster) -> None:
    said = {}
    for name, golden in GOLDEN.items():
        status = golden["status"]
        if MIRROR in golden["metadata"]["annotations"]:
            continue
        stage = "terminated" if status["phase"] in ("Succeeded", "Failed") else "sync"
        cluster.set_pod(cluster.create(name), from_dict(PodStatus, status), stage)
        said[name] = status
    assert len(said) >= 12
    for name, status in said.items():
        cluster.wait_phase(name, status["phase"])
    cluster.settled()
    new = server_is_new(cluster)
    for name, status in said.items():
        assert known(cluster.get(name)["status"], server_knows=True) == known(status, server_knows=new), name
    before = {name: cluster.get(name)["metadata"]["resourceVersion"] for name in said}
    wait_for(lambda: _heard(cluster) == before, 10, "config has heard of it")
    writes = len(cluster.writes())
    assert writes == len(said)
    cluster.restart()
    cluster.settled()
    assert {name: cluster.get(name)["metadata"]["resourceVersion"] for name in said} == before
    # A server that drops fields is told them once more: what it made of them was in memory.
    assert len(cluster.writes()) == writes + (0 if new else len(said))
    for name, (pod, stage) in {one[0].metadata.name: one for one in cluster.own.values()}.items():
        cluster.set_pod(replace(pod, metadata=replace(pod.metadata, labels={"again": name})), None, stage)
    cluster.settled()
    assert len(cluster.writes()) == writes + (0 if new else len(said))


def _heard(cluster: Cluster) -> dict[str, str | None]:
    return {pod.metadata.name or "": pod.metadata.resource_version for pod in list(cluster.pods.values())}


def test_foreign_conditions_stay_and_ours_are_written_again(cluster: Cluster) -> None:
    pod = cluster.set_pod(cluster.create("shared"), running())
    cluster.wait_phase("shared", "Running")
    theirs = {"type": "example.com/gate", "status": "True"}
    wrong = {"type": "Ready", "status": "False", "reason": "Mallory"}
    merge = "application/strategic-merge-patch+json"
    cluster.cp.call("PATCH", f"{PODS}/shared/status", {"status": {"conditions": [theirs, wrong]}}, merge)
    cluster.set_pod(pod, running(pod_ip="10.0.0.9"))

    def mended() -> Any:
        """At once, or with the next write where the news of what they did comes after ours."""
        status = cluster.get("shared")["status"]
        found = {one["type"]: one for one in status["conditions"]}
        return found if status.get("podIP") == "10.0.0.9" and found["Ready"]["status"] == "True" else None

    stored = wait_for(mended, 20, "ours are written again")
    assert stored["example.com/gate"]["status"] == "True"
    assert stored["Ready"].get("reason") is None
    cluster.cp.call("PATCH", f"{PODS}/shared/status", {"status": {"conditions": [wrong]}}, merge)
    wait_for(
        lambda: (
            {one["type"]: one["status"] for one in cluster.get("shared")["status"]["conditions"]}
            == {"example.com/gate": "True", "Ready": "True"}
        ),
        20,
        "what somebody has overwritten is looked for now and then",
    )


def test_terminal_phase_waits_for_processes_deletion_for_release(cluster: Cluster) -> None:
    pod = cluster.set_pod(cluster.create("ending"), running())
    cluster.wait_phase("ending", "Running")
    cluster.delete("ending")
    failed = running("False", "Failed", reason="Evicted", pod_ip="10.0.0.1")
    cluster.set_pod(pod, failed, "terminating")
    wait_for(lambda: cluster.get("ending")["status"].get("podIP") == "10.0.0.1", 10)
    assert cluster.phase("ending") == "Running"
    assert cluster.get("ending")["status"].get("reason") is None
    cluster.set_pod(pod, failed, "terminated")
    cluster.wait_phase("ending", "Failed")
    assert cluster.get("ending")["status"]["reason"] == "Evicted"
    cluster.settled()
    assert not cluster.faulty.of("DELETE")
    cluster.set_pod(pod, running("True", "Running"), "terminated")
    cluster.settled()
    assert cluster.phase("ending") == "Failed"
    cluster.restart()
    cluster.set_pod(pod, failed, "released")
    wait_for(lambda: not cluster.get("ending"), 10)
    (call,) = cluster.faulty.of("DELETE")
    assert call.body["preconditions"] == {"uid": pod.metadata.uid}
    assert call.body["gracePeriodSeconds"] == 0


def disrupted_since(cluster: Cluster, name: str) -> str:
    (found,) = [one for one in cluster.get(name)["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    return str(found["lastTransitionTime"])


def test_disruption_target_has_the_time_of_its_write(cluster: Cluster) -> None:
    pod = cluster.set_pod(cluster.create("evicted"), running())
    cluster.wait_phase("evicted", "Running")
    target = PodCondition(type="DisruptionTarget", status="True", last_transition_time="2026-01-01T00:00:00Z")
    failed = running("False", "Failed", reason="Evicted")
    failed = replace(failed, conditions=(*failed.conditions, target))
    cluster.set_pod(pod, failed, "terminating")
    cluster.settled()
    began = rfc3339.now()
    cluster.set_pod(pod, failed, "terminated")
    cluster.wait_phase("evicted", "Failed")
    written = disrupted_since(cluster, "evicted")
    assert written >= began, "not the begin of the eviction"
    cluster.restart()
    cluster.set_pod(pod, failed, "released")
    cluster.settled()
    assert disrupted_since(cluster, "evicted") == written


def test_object_with_finalizer_is_deleted_once(cluster: Cluster) -> None:
    pod = cluster.set_pod(cluster.create("kept", finalizers=["example.com/kept"]), running())
    cluster.wait_phase("kept", "Running")
    cluster.delete("kept")
    cluster.set_pod(pod, running("False", "Failed"), "released")
    wait_for(lambda: cluster.get("kept")["metadata"].get("deletionGracePeriodSeconds") == 0, 10)
    uid = pod.metadata.uid
    wait_for(lambda: cluster.pods[uid].metadata.deletion_grace_period_seconds == 0, 10, "config has heard of it")
    cluster.settled()
    cluster.restart()
    cluster.settled()
    assert len(cluster.faulty.of("DELETE")) == 1
    assert uid in cluster.pods


def test_deletion_that_the_server_left_halfway_is_repeated(cluster: Cluster) -> None:
    """As when we are killed in the middle of the call: the grace period is 0, and the object stays."""
    pod = cluster.set_pod(cluster.create("halfway"), running())
    uid = pod.metadata.uid
    cluster.wait_phase("halfway", "Running")
    cluster.delete("halfway")
    cluster.set_pod(pod, running("False", "Failed"), "terminated")
    wait_for(lambda: cluster.pods[uid].status.phase == "Failed", 10)
    seen = cluster.pods[uid]
    cluster.pods[uid] = replace(seen, metadata=replace(seen.metadata, deletion_grace_period_seconds=0))
    cluster.own[uid] = (cluster.own[uid][0], "released")
    cluster.restart()
    wait_for(lambda: not cluster.get("halfway"), 10)
    cluster.settled()
    assert len(cluster.faulty.of("DELETE")) == 1


def test_pod_of_same_name_gets_no_write_meant_for_another(cluster: Cluster) -> None:
    first = cluster.set_pod(cluster.create("twin"), running())
    cluster.wait_phase("twin", "Running")
    cluster.faulty.always("PATCH", PODS, AWAY)
    cluster.set_pod(first, running("False", "Failed", message="the first one's"), "terminated")
    wait_for(lambda: len(cluster.writes("twin")) > 1, 10)
    cluster.remove("twin")
    wait_for(lambda: first.metadata.uid not in cluster.pods, 10)
    second = cluster.create("twin")
    cluster.faulty.heal()
    cluster.set_pod(second, running("False", "Pending", message="the second one's"))
    wait_for(lambda: cluster.get("twin")["status"].get("message") == "the second one's", 10)
    # And where the news of the first one's end has not come yet:
    body = {"metadata": {"uid": first.metadata.uid}, "status": {"message": "the first one's"}}
    with pytest.raises(ApiError) as refused:
        cluster.cp.call("PATCH", f"{PODS}/twin/status", body, "application/strategic-merge-patch+json")
    assert refused.value.status in (409, 422)


def test_written_times_survive_the_loss_of_the_checkpoint(cluster: Cluster) -> None:
    pod = cluster.set_pod(cluster.create("kept-times"), running())
    cluster.wait_phase("kept-times", "Running")
    stored = cluster.get("kept-times")["status"]
    cluster.status.kill()
    Path(cluster.status.settings.root_dir, "nodevisor", "status.json").unlink(missing_ok=True)
    before = cluster.get("kept-times")["metadata"]["resourceVersion"]
    wait_for(lambda: _now() > max(stored["startTime"], stored["conditions"][0]["lastTransitionTime"]), 5)
    cluster.status.start()
    cluster._connect()
    cluster.replaced([cluster.get("kept-times")])
    cluster.set_pod(pod)
    cluster.settled()
    assert cluster.get("kept-times")["metadata"]["resourceVersion"] == before
    (shown,) = cluster.status.ask(ListPods()).pods
    assert shown.status.start_time == stored["startTime"]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


# Mirror pods


def mirror(cluster: Cluster, name: str) -> dict[str, Any]:
    found = cluster.get(name)
    return found if MIRROR in found.get("metadata", {}).get("annotations", {}) else {}


def wait_mirror(cluster: Cluster, name: str, version: str = "h1", not_uid: str = "") -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        found = mirror(cluster, name)
        right = found and found["metadata"]["annotations"][MIRROR] == version and found["metadata"]["uid"] != not_uid
        return found if right and found["status"].get("phase") == "Running" else None

    found: dict[str, Any] = wait_for(there, 20, f"a mirror pod {name} of {version} that runs")
    return found


def test_mirror_pod_is_stored_as_the_kubelets_is(cluster: Cluster) -> None:
    cluster.set_pod(static("web-status-node", node=cluster.node))
    made = wait_mirror(cluster, "web-status-node")
    golden = GOLDEN["static-vm"]["metadata"]
    meta = made["metadata"]
    assert meta["annotations"].keys() == golden["annotations"].keys()
    assert (meta["annotations"][HASH], meta["annotations"][SOURCE]) == ("h1", "file")
    (owner,) = meta["ownerReferences"]
    node_uid = cluster.cp.call("GET", f"/api/v1/nodes/{cluster.node}")["metadata"]["uid"]
    kind = {"apiVersion": "v1", "kind": "Node", "controller": True}
    assert owner == {**kind, "name": cluster.node, "uid": node_uid}
    assert made["spec"]["nodeName"] == cluster.node
    cluster.restart()
    cluster.settled()
    assert mirror(cluster, "web-status-node")["metadata"]["uid"] == meta["uid"]


def test_deleted_mirror_is_created_again_and_follows_its_pod(cluster: Cluster) -> None:
    name = "again-status-node"
    first = cluster.set_pod(static(name, node=cluster.node))
    old = wait_mirror(cluster, name)["metadata"]["uid"]
    cluster.delete(name)
    new = wait_mirror(cluster, name, not_uid=old)["metadata"]["uid"]
    cluster.cp.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    newest = wait_mirror(cluster, name, not_uid=new)["metadata"]["uid"]
    cluster.set_pod(first, running("False", pod_ip="10.0.0.7"))
    wait_for(lambda: mirror(cluster, name)["status"].get("podIP") == "10.0.0.7", 10)
    # The manifest changes: the old pod ends, then the new one begins.
    cluster.set_pod(first, running("False"), "terminating")
    cluster.remove_pod(first)
    cluster.set_pod(static(name, "h2", "busybox:2", node=cluster.node))
    changed = wait_mirror(cluster, name, "h2", not_uid=newest)
    assert changed["spec"]["containers"][0]["image"] == "busybox:2"
    cluster.own.clear()
    cluster.set_pods()
    wait_for(lambda: not cluster.get(name), 10, "the mirror goes with the manifest")


def test_mirror_pods_are_counted_until_the_server_has_none(cluster: Cluster) -> None:
    def counted() -> float:
        (((), (count,)),) = cluster.status.ask(GetMetrics()).samples["kubelet_mirror_pods"]
        return count

    assert counted() == 0
    told = cluster.set_pod(static("counted-status-node", node=cluster.node))
    wait_mirror(cluster, "counted-status-node")
    assert counted() == 1
    cluster.set_pod(told, running("False"), "terminating")
    wait_for(lambda: cluster.writes("counted-status-node"), 10)
    assert counted() == 1
    cluster.remove_pod(told)
    wait_for(lambda: counted() == 0, 10, "its end")


def test_leftover_mirror_is_deleted_once_all_pods_are_known(cluster: Cluster) -> None:
    name = "left-status-node"
    cluster.set_pod(static(name, node=cluster.node))
    left = wait_mirror(cluster, name)["metadata"]["uid"]
    cluster.own.clear()
    cluster.restart(told=False)
    cluster.replaced([cluster.get(name)])
    cluster.settled()
    assert mirror(cluster, name)["metadata"]["uid"] == left
    cluster.set_pods()
    wait_for(lambda: not cluster.get(name), 10)


def test_foreign_pod_with_the_mirrors_name_is_left_alone(cluster: Cluster) -> None:
    name = "taken-status-node"
    foreign = cluster.create(name)
    cluster.set_pod(static(name, node=cluster.node))
    cluster.set_pod(foreign, running("False", "Pending", message="its own"))
    wait_for(lambda: cluster.get(name)["status"].get("message") == "its own", 10)
    cluster.settled()
    assert not cluster.faulty.of("POST")
    cluster.remove(name)
    wait_mirror(cluster, name)


def test_flush_ends_with_the_last_write_or_its_timeout(cluster: Cluster) -> None:
    assert cluster.status.ask(Flush(timeout_s=5)).unsaid == 0
    pod = cluster.create("flushed")
    cluster.faulty.always("PATCH", PODS, AWAY)
    cluster.set_pod(pod, running())
    wait_for(lambda: cluster.writes("flushed"), 10)
    assert cluster.status.ask(Flush(timeout_s=0.2)).unsaid == 1
    cluster.faulty.heal()
    assert cluster.status.ask(Flush(timeout_s=9)).unsaid == 0
    assert cluster.phase("flushed") == "Running"


def test_resize_condition_is_written_and_removed(cluster: Cluster) -> None:
    pod = cluster.create("resized")
    pending = PodCondition(type="PodResizePending", status="True", reason="Deferred")
    status = running()
    cluster.set_pod(pod, replace(status, conditions=(pending, *status.conditions)))
    wait_for(lambda: len(cluster.get("resized")["status"].get("conditions", ())) == 2, 10)
    cluster.set_pod(pod, status)
    wait_for(lambda: len(cluster.get("resized")["status"]["conditions"]) == 1, 10, "a condition that is over goes")
