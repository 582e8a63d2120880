"""Workloads of a real cluster on our node: what the controllers and the scheduler make of it, and kubectl."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import yaml

from tests.agent.agent import SLEEP, Agent, container, is_ready, pod
from tests.agent.api.cluster import SLOW_S, Cluster, template, workload
from tests.containerd import ContainerdInstance
from tests.containerd.images import BUSYBOX
from tests.controlplane import ControlPlane
from tests.controlplane.binaries import CONTROLLERS, own_kubectl
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)

NAME = "member"

STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"
"""Ends by SIGKILL only."""


@pytest.fixture(scope="module")
def cluster(containerd: ContainerdInstance, full_control_plane: ControlPlane) -> Iterator[Cluster]:
    agent = Agent(containerd, NAME)
    access = {
        "authentication": {"x509": {"clientCAFile": str(full_control_plane.dir / "pki" / "ca.crt")}},
        "authorization": {"mode": "AlwaysAllow"},
    }
    agent.config.write_text(json.dumps(yaml.safe_load(agent.config.read_text()) | access))
    with closing(Cluster(full_control_plane, agent)) as one:
        one.start()
        yield one


def bare(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod without a controller."""
    return pod(name, *containers, automountServiceAccountToken=False, **spec)


# Workloads


def test_starts_of_a_new_node_and_its_first_pod_are_timed(cluster: Cluster) -> None:
    cluster.apply(bare("timed", container("c"), initContainers=[container("i", "sleep 5")]))
    cluster.wait_ready("app=timed", 1)
    samples = cluster.agent.samples
    wait_for(lambda: samples("status", "kubelet_pod_start_sli_duration_seconds"), 20, "the watch shows it as started")
    (total,) = samples("status", "kubelet_pod_start_total_duration_seconds").values()
    (sli,) = samples("status", "kubelet_pod_start_sli_duration_seconds").values()
    first = samples("status", "kubelet_first_network_pod_start_sli_duration_seconds")
    # Of the 5 s of the init container some count not: containerd notes a start after the command has begun.
    assert 0 < sli[-1] < total[-1] - 2 < 60
    assert first == {(): (sli[-1],)}
    phases = ("pre_kubelet", "pre_registration", "registration", "post_registration")
    parts = [samples("node", f"kubelet_node_startup_{phase}_duration_seconds")[()][0] for phase in phases]
    assert min(parts) > 0
    assert samples("node", "kubelet_node_startup_duration_seconds")[()][0] == pytest.approx(sum(parts))
    cluster.kubectl("delete", "pod/timed", "--wait=false")
    cluster.wait_gone("app=timed")


@pytest.mark.timeout(600)
def test_a_deployment_of_thirty_scaled_and_rolled(cluster: Cluster) -> None:
    ready = container("c", f"touch /tmp/ready; {SLEEP}", readinessProbe=probe("test -e /tmp/ready"))
    cluster.apply(workload("Deployment", "web", template("web", ready), replicas=30))
    first = cluster.wait_ready("app=web", 30, SLOW_S)
    assert len({one["status"]["podIP"] for one in first.values()}) == 30
    cluster.kubectl("scale", "deployment/web", "--replicas=3")
    kept = cluster.wait_ready("app=web", 3, SLOW_S)
    wait_for(lambda: len(cluster.running("web")) == 3, 60, "what is gone from the API is gone here")
    assert all(one["status"]["containerStatuses"][0]["restartCount"] == 0 for one in kept.values())
    cluster.kubectl("set", "env", "deployment/web", "VERSION=2")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=120s", timeout_s=150)
    rolled = cluster.wait_ready("app=web", 3)
    assert not rolled.keys() & kept.keys()
    cluster.kubectl("delete", "deployment/web", "--wait=false")
    cluster.wait_gone("app=web")


def probe(command: str) -> dict[str, Any]:
    """A slow command is no failure: thirty pods run one each second, on a machine that does other things, too."""
    return {"exec": {"command": ["sh", "-c", command]}, "periodSeconds": 1, "timeoutSeconds": 10}


def test_jobs_complete_and_fail_as_their_pods_do(cluster: Cluster) -> None:
    good = template("good", container("c", "exit 0"), restartPolicy="Never")
    bad = template("bad", container("c", "exit 3"), restartPolicy="Never")
    cluster.apply(
        workload("Job", "good", good, completions=3, parallelism=2), workload("Job", "bad", bad, backoffLimit=0)
    )
    cluster.kubectl("wait", "--for=condition=complete", "job/good", "--timeout=90s")
    cluster.kubectl("wait", "--for=condition=failed", "job/bad", "--timeout=90s")
    phases = sorted(one["status"]["phase"] for one in cluster.pods("app=good").values())
    assert phases == ["Succeeded"] * 3
    (failed,) = cluster.pods("app=bad").values()
    ended = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (failed["status"]["phase"], ended["exitCode"], ended["reason"]) == ("Failed", 3, "Error")
    cluster.kubectl("delete", "job/good", "job/bad", "--wait=false")
    cluster.wait_gone("app in (good, bad)")


def test_stateful_set_starts_in_order_and_recreates_a_pod(cluster: Cluster) -> None:
    cluster.apply(workload("StatefulSet", "db", template("db"), serviceName="db", replicas=2))
    pods = cluster.wait_ready("app=db", 2)
    started = {name: one["status"]["startTime"] for name, one in pods.items()}
    assert started["db-0"] <= started["db-1"]
    cluster.kubectl("delete", "pod", "db-0", "--wait=false")

    def comes_back() -> bool:
        found = cluster.pods("app=db").get("db-0", {})
        return bool(found) and found["metadata"]["uid"] != pods["db-0"]["metadata"]["uid"]

    wait_for(comes_back, 60, "db-0 with another UID")
    after = cluster.wait_ready("app=db", 2)
    assert after["db-1"]["metadata"]["uid"] == pods["db-1"]["metadata"]["uid"]
    wait_for(lambda: len(cluster.running("db-")) == 2, 30, "the old one is gone")
    cluster.kubectl("delete", "statefulset/db", "--wait=false")
    cluster.wait_gone("app=db")


def test_a_daemon_set_runs_on_the_node_and_is_replaced_in_place(cluster: Cluster) -> None:
    cluster.apply(workload("DaemonSet", "agent", template("agent", hostNetwork=True)))
    (before,) = cluster.wait_ready("app=agent", 1).values()
    assert before["status"]["podIP"] == before["status"]["hostIP"] == cluster.agent.node_ip
    cluster.kubectl("set", "env", "daemonset/agent", "VERSION=2")
    cluster.kubectl("rollout", "status", "daemonset/agent", "--timeout=90s")
    (after,) = cluster.wait_ready("app=agent", 1).values()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    cluster.kubectl("delete", "daemonset/agent", "--wait=false")
    cluster.wait_gone("app=agent")


def test_pod_has_its_service_account_token_and_service_variables(cluster: Cluster) -> None:
    wait_for(lambda: cluster.plane.get("/api/v1/namespaces/default/serviceaccounts/default"), 30)
    service = {"metadata": {"name": "front"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "x"}}}
    stored = cluster.plane.call("POST", "/api/v1/namespaces/default/services", service)
    tokens = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = (
        f"test -s {tokens}/token && test -s {tokens}/ca.crt && test $FRONT_SERVICE_HOST = {stored['spec']['clusterIP']}"
    )
    cluster.apply(
        pod("account", container("c", f"{script} && test $KUBERNETES_SERVICE_PORT = 443"), restartPolicy="Never")
    )
    wait_for(lambda: cluster.pod("account").get("status", {}).get("phase") in ("Succeeded", "Failed"), 60)
    assert cluster.pod("account")["status"]["phase"] == "Succeeded", cluster.pod("account")["status"]
    cluster.kubectl("delete", "pod/account", "service/front", "--wait=false")
    cluster.wait_gone("app=account")


# kubectl


def test_get_and_describe_show_a_pod_as_it_is(cluster: Cluster) -> None:
    cluster.apply(bare("shown", container("c", SLEEP), container("broken", "exit 7")))

    def backs_off() -> list[str]:
        words = cluster.kubectl("get", "pod", "shown", "-o", "wide").splitlines()[1].split()
        return words if "CrashLoopBackOff" in words else []

    line = wait_for(backs_off, 60, "its state in one word")
    assert line[0] == "shown"
    assert line[1] == "1/2"
    parts = (
        rf"Node: +{NAME}/{re.escape(cluster.agent.node_ip)}", "Exit Code: +7", "Reason: +CrashLoopBackOff",
        "Status: +Running",
    )  # fmt: skip
    described = ""

    def is_described() -> bool:
        nonlocal described
        described = cluster.kubectl("describe", "pod", "shown")
        return all(re.search(part, described) for part in parts)

    try:
        wait_for(is_described, 60)  # between two back-offs it runs
    except AssertionError:
        raise AssertionError(described) from None
    cluster.kubectl("delete", "pod/shown", "--grace-period=0", "--force")
    cluster.wait_gone("app=shown")
    wait_for(lambda: not cluster.running("shown"), 30, "killed here, too")


def test_delete_with_a_shorter_and_a_shortened_grace_period(cluster: Cluster) -> None:
    cluster.apply(*(bare(name, container("c", STUBBORN), terminationGracePeriodSeconds=600) for name in ("a1", "a2")))
    cluster.wait_ready("app in (a1, a2)", 2)
    began = time.monotonic()
    cluster.kubectl("delete", "pod/a1", "--grace-period=2")  # it waits for the object's end
    assert 2 <= time.monotonic() - began < 60
    cluster.kubectl("delete", "pod/a2", "--wait=false")
    wait_for(lambda: "deletionTimestamp" in cluster.pod("a2")["metadata"], 10)
    time.sleep(1)
    assert cluster.running("a2"), "it has ten minutes"
    cluster.kubectl("delete", "pod/a2", "--grace-period=1")
    cluster.wait_gone("app in (a1, a2)")
    wait_for(lambda: not cluster.running("a"), 30)


def test_cordon_and_drain(cluster: Cluster) -> None:
    cluster.agent.write("fixed", pod("fixed"))
    cluster.apply(
        workload("Deployment", "drained", template("drained"), replicas=2),
        workload("DaemonSet", "stays", template("stays")),
    )
    cluster.wait_ready("app=drained", 2)
    cluster.wait_ready("app=stays", 1)
    wait_for(lambda: is_ready(cluster.pod(f"fixed-{NAME}")), 60, "the static pod is shown, and runs")
    cluster.kubectl("drain", NAME, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
    wait_for(lambda: not cluster.running("drained"), 30)
    assert cluster.running("stays")
    assert cluster.running("fixed"), "a static pod is not the API server's to drain"
    wait_for(lambda: len(cluster.pods("app=drained")) == 2, 30, "the next two")
    waiting = cluster.pods("app=drained")
    assert {one["status"]["phase"] for one in waiting.values()} == {"Pending"}
    cluster.kubectl("uncordon", NAME)
    cluster.wait_ready("app=drained", 2)
    (cluster.agent.manifests / "fixed.yaml").unlink()
    wait_for(lambda: not cluster.pod(f"fixed-{NAME}"), 60, "its mirror pod is gone")
    cluster.kubectl("delete", "deployment/drained", "daemonset/stays", "--wait=false")
    cluster.wait_gone("app in (drained, stays)")


def own_node(cluster: Cluster) -> bytes:
    """Return the node actor's checkpoint of its Node object."""
    return (cluster.agent.root_dir / "nodevisor" / "own-node.json").read_bytes()


def test_a_no_execute_taint_drives_out_who_does_not_tolerate_it(cluster: Cluster) -> None:
    tolerations = [{"key": "sick", "operator": "Exists", "effect": "NoExecute"}]
    cluster.apply(bare("frail"), bare("tough", tolerations=tolerations))
    cluster.wait_ready("app in (frail, tough)", 2)
    cluster.kubectl("taint", "nodes", NAME, "sick=yes:NoExecute")
    try:
        cluster.wait_gone("app=frail")
        wait_for(lambda: not cluster.running("frail"), 30)
        assert cluster.running("tough")
        wait_for(lambda: b'"sick"' in own_node(cluster), 30, "the node knows of its taint")
        # The scheduler would not send this one. Two see it come: the node refuses it, as it has read its own taints,
        # and the controller deletes pods that do not tolerate them, rejected or not: it waits for the node's status.
        with cluster.plane.paused(CONTROLLERS):
            cluster.apply(bare("sent", nodeName=NAME))
            wait_for(lambda: cluster.pod("sent")["status"]["phase"] == "Failed", 60)
            assert cluster.pod("sent")["status"]["reason"] == "TaintToleration"
        cluster.wait_gone("app=sent")
        told = cluster.agent.command("events", "--for", "pod/sent").stdout
        assert "TaintToleration" in told
        assert not re.search(r"Pulled|Created|Started", told)
    finally:
        cluster.kubectl("taint", "nodes", NAME, "sick-")
    cluster.kubectl("delete", "pod/tough", "--wait=false")
    cluster.wait_gone("app in (frail, tough)")


def test_new_node_label_admits_the_pod_that_selects_it(cluster: Cluster) -> None:
    cluster.apply(bare("picky", nodeSelector={"disk": "fast"}))
    cluster.kubectl("label", "node", NAME, "disk=fast")
    cluster.wait_ready("app=picky", 1)
    cluster.kubectl("label", "node", NAME, "disk-")
    wait_for(lambda: b'"disk"' not in own_node(cluster), 30, "the node knows that its label is gone")
    cluster.apply(bare("too-late", nodeSelector={"disk": "fast"}, nodeName=NAME))
    wait_for(lambda: cluster.pod("too-late").get("status", {}).get("reason") == "NodeAffinity", 60)
    assert cluster.running("picky"), "what runs is not asked again"
    cluster.kubectl("delete", "pod/picky", "pod/too-late", "--wait=false")
    cluster.wait_gone("app in (picky, too-late)")


def debug(cluster: Cluster, name: str, script: str, *flags: str) -> None:
    """kubectl debug; the one of the server's version, since the subresource was another one before 1.22."""
    image = f"--image={BUSYBOX}", "--image-pull-policy=IfNotPresent"
    command = "debug", "patient", "-c", name, *image, *flags, "--", "sh", "-c", script
    cluster.kubectl(*command, program=own_kubectl())


def debugger(cluster: Cluster, name: str) -> dict[str, Any]:
    """The status of an ephemeral container; empty without."""
    statuses = cluster.pod("patient")["status"].get("ephemeralContainerStatuses") or ()
    return next((one for one in statuses if one["name"] == name), {})


def test_debug_containers_join_a_running_pod(cluster: Cluster) -> None:
    cluster.apply(bare("patient"))
    before = cluster.wait_ready("app=patient", 1)["patient"]
    debug(cluster, "doctor", SLEEP, "--target=c")
    wait_for(lambda: "running" in debugger(cluster, "doctor").get("state", {}), 60, "the debug container runs")

    def sleepers() -> int:
        return cluster.kubectl("exec", "patient", "-c", "doctor", "--", "ps", "-o", "args").count("sleep 100000")

    wait_for(lambda: sleepers() >= 2, 30, "it sees its own, and its target's")
    debug(cluster, "talker", "until test -e /tmp/heard; do echo spoken; sleep 1; done")
    wait_for(lambda: "running" in debugger(cluster, "talker").get("state", {}), 60, "another one runs")
    with cluster.begun("attach", "patient", "-c", "talker") as attached:
        assert attached.stdout is not None
        assert "spoken" in attached.stdout.readline()
        cluster.kubectl("exec", "patient", "-c", "talker", "--", "touch", "/tmp/heard")
        assert attached.wait(60) == 0
    ended = wait_for(lambda: debugger(cluster, "talker")["state"].get("terminated"), 60, "it has ended")
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert debugger(cluster, "talker")["restartCount"] == 0
    assert "spoken" in cluster.kubectl("logs", "patient", "-c", "talker")
    assert "running" in debugger(cluster, "doctor")["state"], "one that ends is no other's end"
    after = cluster.pod("patient")["status"]
    assert after["containerStatuses"] == before["status"]["containerStatuses"]
    assert is_ready(cluster.pod("patient"))
    cluster.kubectl("delete", "pod/patient", "--wait=false")
    cluster.wait_gone("app=patient")
    wait_for(lambda: not cluster.running("patient"), 30)


def test_changes_of_a_running_pod_that_the_node_takes(cluster: Cluster) -> None:
    labels = {
        "name": "info",
        "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
    }
    mount = [{"name": "info", "mountPath": "/info"}]
    script = f"(until grep -q tier /info/labels; do sleep 0.2; done; touch /tmp/seen) & {SLEEP}"
    seen = {"exec": {"command": ["test", "-e", "/tmp/seen"]}, "periodSeconds": 1}
    cluster.apply(bare("edited", container("c", script, volumeMounts=mount, readinessProbe=seen), volumes=[labels]))
    wait_for(lambda: cluster.running("edited"), 60)
    (identity,) = cluster.running("edited")
    cluster.kubectl("label", "pod", "edited", "tier=front")
    cluster.wait_ready("app=edited", 1)
    assert identity in cluster.running("edited")
    cluster.kubectl("set", "image", "pod/edited", "c=docker.io/library/busybox")
    wait_for(lambda: cluster.running("edited") and identity not in cluster.running("edited"), 60, "a new container")
    change = json.dumps({"spec": {"activeDeadlineSeconds": 3}})
    cluster.kubectl("patch", "pod", "edited", "-p", change)
    wait_for(lambda: cluster.pod("edited")["status"].get("reason") == "DeadlineExceeded", 60)
    assert cluster.pod("edited")["status"]["phase"] == "Failed"
    cluster.kubectl("delete", "pod/edited", "--wait=false")
    cluster.wait_gone("app=edited")
