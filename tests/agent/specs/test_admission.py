"""Admission on an agent with few resources: rejections, sysctls and preemption."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.quantities.resources import PodLimits, shares_to_weight
from actors._host.machine import HUGE_PAGES, huge_pages, memory_capacity
from proto.pods.events import ListEvents
from proto.v1 import Pod
from supervisor.sockets.client import Client
from tests.agent.agent import SLEEP, Agent, container, pod
from tests.agent.api_source import ApiSource
from tests.agent.table import log_text
from tests.cgroups import DRIVER, cgroup_name
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

SETTLES_S = 60.0
TAINT = {"key": "maintenance", "value": "disk", "effect": "NoExecute"}
BEARS_IT = [{"key": "maintenance", "operator": "Exists"}]


@pytest.fixture(scope="module")
def small(containerd: ContainerdInstance) -> Iterator[ApiSource]:
    """A node with one CPU for pods, a taint, a label, and two kinds of sysctls allowed."""
    with closing(Agent(containerd, api=True)) as agent:
        kube, nobody = cgroup_name(agent.dir.name, "kube"), cgroup_name(agent.dir.name, "nobody")
        fs.ensure(kube, PodLimits(), DRIVER, hierarchy())
        config = yaml.safe_load(agent.config.read_text()) | {
            "systemReserved": {"cpu": f"{(os.cpu_count() or 1) * 1000 - 1000}m", "memory": "1Gi"},
            "kubeReserved": {"memory": "512Mi"},
            "kubeReservedCgroup": kube,
            "systemReservedCgroup": nobody,
            "enforceNodeAllocatable": ["pods", "kube-reserved", "system-reserved"],
            "featureGates": {"QOSReserved": True},
            "qosReserved": {"memory": "50%"},
            "seccompDefault": True,
            "allowedUnsafeSysctls": ["net.core.*", "kernel.msgmax"],
            "registerWithTaints": [TAINT],
        }
        agent.config.write_text(yaml.safe_dump(config))
        before = free_of_huge_pages()
        agent.start("--node-labels", "disk=ssd")
        agent.wholes = {before, free_of_huge_pages()}  # type: ignore[attr-defined]
        with closing(ApiSource(agent)) as api:
            yield api


def free_of_huge_pages() -> int:
    """The machine's memory without huge pages. Tests of volumes change these; an agent reads them at its start."""
    return memory_capacity() - sum(huge_pages(HUGE_PAGES).values())


def wants(name: str, script: str = SLEEP, requests: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that bears the node's taint."""
    own = {"resources": {"requests": requests}} if requests else {}
    return pod(name, container("c", script, **own), **{"tolerations": BEARS_IT, **spec})


def sysctls(**values: str) -> dict[str, Any]:
    found = [{"name": name.replace("__", "."), "value": value} for name, value in values.items()]
    return {"securityContext": {"sysctls": found}}


def short(resource: str, requested: int, used: int, capacity: int) -> str:
    return f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"


NO_NODE = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["vm"]}]}]
        }
    }
}

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "cpu": (wants("cpu", requests={"cpu": "64"}), "OutOfcpu", short("cpu", 64000, 0, 1000)),
    "hugepages": (
        wants("hugepages", requests={"hugepages-16Mi": "16Mi", "cpu": "1m"}),
        "OutOfhugepages-16Mi",
        short("hugepages-16Mi", 1 << 24, 0, 0),
    ),
    "selector": (wants("selector", nodeSelector={"disk": "hdd"}), "NodeAffinity", NO_NODE),
    "affinity": (wants("affinity", affinity=AFFINITY), "NodeAffinity", NO_NODE),
    "taint": (
        wants("taint", tolerations=[{"key": "maintenance", "operator": "Equal", "value": "cpu"}]),
        "TaintToleration",
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    ),
    "windows": (
        wants("windows", os={"name": "windows"}),
        "PodOSNotSupported",
        "Failed to admit pod as the OS field doesn't match node OS",
    ),
    "sysctl": (
        wants("sysctl", **sysctls(net__ipv4__ip_forward="1")),
        "SysctlForbidden",
        'forbidden sysctl: "net.ipv4.ip_forward" not allowlisted',
    ),
    "hostnet": (
        wants("hostnet", hostNetwork=True, **sysctls(net__core__somaxconn="100")),
        "SysctlForbidden",
        'forbidden sysctl: "net.core.somaxconn" not allowed with host Net enabled',
    ),
}


def has_failed(api: ApiSource, name: str) -> Pod:
    return api.wait_phase(name, "Failed", SETTLES_S)


def events(agent: Agent) -> set[tuple[str, str, str]]:
    """(pod, reason, message)"""
    with closing(Client(agent.run_dir)) as client:
        found = client.ask("events", ListEvents(), 5.0).events
    return {(one.involved_object.name or "", one.reason or "", one.message or "") for one in found}


def test_rejected_pods_have_the_kubelets_messages(small):
    for manifest, _, _ in REFUSED.values():
        small.add(manifest)
    for name, (_, reason, message) in REFUSED.items():
        status = has_failed(small, name).status
        assert (status.reason, status.message) == (reason, f"Pod was rejected: {message}"), name
        assert not status.container_statuses
        assert not status.conditions
        assert status.start_time
    assert small.agent.sandboxes() == []

    wanted = {(name, reason, message) for name, (_, reason, message) in REFUSED.items()}
    wait_for(lambda: wanted <= events(small.agent), 10, f"an event of each, without the prefix: {events(small.agent)}")
    assert {one for one in events(small.agent) if one[0] in REFUSED} == wanted
    for name in REFUSED:
        small.delete(name)
    small.wait_gone(*REFUSED)


def test_static_pod_that_does_not_fit_is_refused_as_critical(small):
    agent = small.agent
    agent.write("huge", pod("huge", container("c", resources={"requests": {"cpu": "64"}})))
    agent.write("elsewhere", pod("elsewhere", nodeSelector={"disk": "hdd"}))
    agent.write("tainted", pod("tainted"))  # static pods bear every NoExecute taint
    huge = has_failed(small, "huge-vm").status
    assert huge.reason == "UnexpectedAdmissionError"
    assert huge.message == (
        "Pod was rejected: Unexpected error while attempting to recover from admission failure: preemption: error "
        "finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 63000), ]"
    )
    elsewhere = has_failed(small, "elsewhere-vm").status
    assert (elsewhere.reason, elsewhere.message) == ("NodeAffinity", f"Pod was rejected: {NO_NODE}")
    small.wait_ready("tainted-vm")
    remove(small, "huge", "elsewhere", "tainted")


def remove(api: ApiSource, *names: str) -> None:
    for name in names:
        (api.agent.manifests / f"{name}.yaml").unlink()
    api.wait_gone(*(f"{name}-vm" for name in names))


def test_a_port_of_the_node_is_taken_once(small):
    ports = {"ports": [{"containerPort": 80, "hostPort": 41871}]}
    small.add(pod("first", container("c", **ports), tolerations=BEARS_IT))
    small.wait_ready("first")
    small.add(pod("second", container("c", **ports), tolerations=BEARS_IT))
    second = has_failed(small, "second").status
    assert second.reason == "NodePorts"
    assert second.message == (
        "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    )
    small.delete("first")
    small.wait_gone("first")
    small.add(pod("third", container("c", **ports), tolerations=BEARS_IT))
    small.wait_ready("third")
    for name in ("second", "third"):
        small.delete(name)
    small.wait_gone("second", "third")


def logged(api: ApiSource, added: Pod, count: int) -> list[str]:
    """The lines of an ended pod's log, once there are so many: containerd may write the last ones after the exit."""
    path = api.agent.dir / "logs" / f"default_{added.metadata.name}_{added.metadata.uid}" / "c" / "0.log"
    wait_for(lambda: len(log_text(path).splitlines()) >= count, 10, f"{count} lines in {path}")
    return log_text(path).splitlines()


def test_sysctls_that_are_safe_or_allowed_are_the_pods_own(small):
    names = ("net/ipv4/ip_local_port_range", "net/core/somaxconn", "kernel/msgmax", "net/ipv4/tcp_syncookies")
    script = "; ".join(f"echo $(cat /proc/sys/{name})" for name in names)
    values = sysctls(
        net__ipv4__ip_local_port_range="20000 20999",
        net__core__somaxconn="77",
        kernel__msgmax="4096",
        net__ipv4__tcp_syncookies="0",
    )
    added = small.add(wants("tuned", script, restartPolicy="Never", **values))
    small.wait_phase("tuned", "Succeeded")
    assert logged(small, added, 4) == ["20000 20999", "77", "4096", "0"]
    small.delete("tuned")
    small.wait_gone("tuned")


def test_container_without_a_profile_gets_the_runtimes_default(small):
    script = "grep Seccomp: /proc/self/status"
    own = {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}
    added = {
        "default": small.add(wants("default", script, restartPolicy="Never")),
        "unconfined": small.add(wants("unconfined", script, restartPolicy="Never", **own)),
    }
    for name, mode in (("default", "2"), ("unconfined", "0")):
        small.wait_phase(name, "Succeeded")
        assert logged(small, added[name], 1) == [f"Seccomp:\t{mode}"]
        small.delete(name)
    small.wait_gone(*added)


def test_strict_groups_where_the_runtime_says_it_can(small):
    strict = wants("groups", securityContext={"supplementalGroupsPolicy": "Strict", "supplementalGroups": [4000]})
    small.add(strict)
    if small.agent.containerd.cri.status().result().features.supplemental_groups_policy:
        small.wait_ready("groups")
        user = small.status("groups").status.container_statuses[0].user
        assert (user.linux.uid, user.linux.gid, user.linux.supplemental_groups) == (0, 0, (0, 4000))
    else:
        status = has_failed(small, "groups").status
        assert status.reason == "SupplementalGroupsPolicyNotSupported"
        assert status.message == "Pod was rejected: SupplementalGroupsPolicy=Strict is not supported in this node"
        assert not status.container_statuses
    small.delete("groups")
    small.wait_gone("groups")


def test_users_of_its_own_where_the_runtime_says_it_can(small):
    handlers = small.agent.containerd.cri.status().result().runtime_handlers
    can = {one.name: one.features.user_namespaces for one in handlers}
    if can.get(""):
        has_users_of_its_own(small)
    else:
        is_refused_users(small, "" if can else ': the handler "" is not known')
    small.delete("users")
    small.wait_gone("users")


def has_users_of_its_own(small: ApiSource) -> None:
    """Root in the container is an unprivileged user of the node. Its files belong to root on both sides."""
    files = "stat -c %u /etc/hosts /v; echo x > /v/f; stat -c %u /v/f"
    script = f"cat /proc/self/uid_map; {files}; echo done > /dev/termination-log"
    mounts = [{"name": "v", "mountPath": "/v"}]
    made = wants("users", script, hostUsers=False, restartPolicy="Never", volumes=[{"name": "v", "emptyDir": {}}])
    made["spec"]["containers"][0]["volumeMounts"] = mounts
    added = small.add(made)
    uid = added.metadata.uid
    small.wait_phase("users", "Succeeded")
    first, *owners = logged(small, added, 4)
    inside, outside, count = map(int, first.split())
    assert (inside, count) == (0, 65536)
    assert outside >= 65536
    assert owners == ["0", "0", "0"]
    written = small.agent.root_dir / "pods" / uid / "volumes/kubernetes.io~empty-dir/v/f"
    assert written.stat().st_uid == 0
    assert small.status("users").status.container_statuses[0].state.terminated.message == "done\n"


def is_refused_users(small: ApiSource, why: str) -> None:
    small.add(wants("users", hostUsers=False))
    words = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces"

    def said() -> set[str]:
        found = events(small.agent)
        return {what for name, reason, what in found if (name, reason) == ("users", "FailedCreatePodSandBox")}

    wait_for(said, 20, "why it has no sandbox")
    assert said() == {words + why}


def limit(agent: Agent, name: str, controller: str, v1: str, v2: str) -> str:
    """Return a cgroup file's content, below the agent's root."""
    tree = hierarchy()
    where = tree.path(controller, cgroup_name(agent.dir.name, *name.split("/")))
    return Path(where or "/nowhere", v2 if tree.unified else v1).read_text().strip()


def cpu(agent: Agent, name: str) -> int:
    """Return cpu.shares; on v2 the weight, which is compared with the converted shares."""
    return int(limit(agent, name, "cpu", "cpu.shares", "cpu.weight"))


def memory(agent: Agent, name: str) -> int:
    return int(limit(agent, name, "memory", "memory.limit_in_bytes", "memory.max"))


def shares(number: int) -> int:
    return shares_to_weight(number) if hierarchy().unified else number


def test_the_cgroups_above_the_pods_have_the_nodes_limits(small):
    agent = small.agent
    limits = {(whole - (3 << 29)) // 4096 * 4096 for whole in agent.wholes}
    wait_for(lambda: memory(agent, "kubepods") in limits, 20, f"limited to one of {limits}")
    assert cpu(agent, "kubepods") == shares(1024)
    wait_for(lambda: memory(agent, "kube") == 1 << 29, 20, "the reservation's cgroup")
    failed = [message for _, reason, message in events(agent) if reason == "FailedNodeAllocatableEnforcement"]
    name = cgroup_name(agent.dir.name, "nobody")
    text = f'Failed to enforce System Reserved Cgroup Limits on "{name}": ["{name.strip("/")}"] cgroup does not exist'
    assert failed == [text]

    small.add(wants("burst", requests={"cpu": "250m", "memory": "64Mi"}))
    small.add(wants("burst2", requests={"cpu": "125m", "memory": "64Mi"}))
    small.wait_ready("burst", "burst2")
    wait_for(lambda: cpu(agent, "kubepods/burstable") == shares(384), 20, "what both request")
    assert cpu(agent, "kubepods/besteffort") == shares(2)

    def kept() -> int:
        return memory(agent, "kubepods/burstable") - memory(agent, "kubepods/besteffort")

    # One file after the other.
    wait_for(lambda: kept() == 64 << 20, 20, "half of what the Burstable pods request")
    small.delete("burst")
    small.wait_gone("burst")
    wait_for(lambda: cpu(agent, "kubepods/burstable") == shares(128), 20, "what is left")
    small.delete("burst2")
    small.wait_gone("burst2")


def test_a_critical_pod_takes_the_place_of_others(small):
    """A kill of the actor changes no decision."""
    small.add(wants("low", requests={"cpu": "300m"}))
    small.add(wants("lower", requests={"cpu": "600m"}))
    small.add(wants("free"))
    small.wait_ready("low", "lower", "free")
    small.add(wants("late", requests={"cpu": "200m"}))
    assert has_failed(small, "late").status.message == f"Pod was rejected: {short('cpu', 200, 900, 1000)}"

    small.agent.write("critical", pod("critical", container("c", resources={"requests": {"cpu": "500m"}})))
    small.wait_ready("critical-vm")
    victim = has_failed(small, "lower")
    assert (victim.status.reason, victim.status.message) == ("Preempting", "Preempted in order to admit critical pod")
    (condition,) = [one for one in victim.status.conditions if one.type == "DisruptionTarget"]
    assert (condition.status, condition.reason) == ("True", "TerminationByKubelet")
    assert condition.message == "Pod was preempted by Kubelet to accommodate a critical pod."
    (ended,) = victim.status.container_statuses
    assert ended.state is not None
    assert ended.state.terminated is not None
    wait_for(
        lambda: [name for name, reason, _ in events(small.agent) if reason == "Preempting"] == ["lower"],
        10,
        "its event, which goes another way than its status",
    )
    assert small.agent.counts("pod_workers", "kubelet_preemptions") == {("cpu",): 1}

    before = small.agent.running()
    small.agent.kill_actors("pod_workers")
    small.wait_ready("low", "free", "critical-vm")
    assert has_failed(small, "lower").status.reason == "Preempting"
    assert has_failed(small, "late").status.reason == "OutOfcpu"
    small.add(wants("later", requests={"cpu": "300m"}))
    assert has_failed(small, "later").status.message == f"Pod was rejected: {short('cpu', 300, 800, 1000)}"
    assert small.agent.running() == before

    remove(small, "critical")
    small.add(wants("last", requests={"cpu": "700m"}))
    small.wait_ready("last")
    for name in ("low", "lower", "free", "late", "later", "last"):
        small.delete(name)
    small.wait_gone("low", "lower", "free", "late", "later", "last")
    assert small.agent.sandboxes() == []
