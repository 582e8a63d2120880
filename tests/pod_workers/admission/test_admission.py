"""Admission: tables of pods, nodes and verdicts, with the kubelet's messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from actors._cgroup.quantities.allocatable import allocatable, enforced
from actors._host.machine import Machine
from actors._host.node.downward import default_limits
from actors._host.node.selector import default_labels
from actors._host.node.sysctl import dotted
from actors.config.defaulting.defaults import default_pod
from actors.pod_workers.admission import (
    Admitted,
    NodeInfo,
    Preempt,
    Rejection,
    RuntimeFeatures,
    Share,
    admit,
    affinity,
    node_info,
    preemption,
    rejection_before_resources,
)
from actors.pod_workers.admission.resources import Shortage
from actors.pod_workers.admission.sysctls import Allowlist
from actors.pod_workers.model.allocation import resources_of
from proto.agent.settings import Settings, Taint
from proto.v1 import Pod, PodStatus

GI = 1 << 30
MACHINE = Machine(cpus=4, memory_bytes=8 * GI, root_fs_bytes=100 * GI, huge_page_bytes={"hugepages-2Mi": 0})
LABELS = default_labels("vm", "amd64") | {"disk": "ssd", "rack": "7", "zone": "a"}
NODE = NodeInfo(
    name="vm",
    labels=LABELS,
    allocatable={"cpu": 2000, "memory": 4 * GI, "ephemeral-storage": 10 * GI, "hugepages-2Mi": 0, "pods": 4},
    sysctls=Allowlist.of(("net.core.*", "kernel.msgmax", "net/ipv4/conf/eth0.1/rp_filter"), "6.1.0-9-amd64"),
)


def pod(name: str = "p", *, static: bool = False, requests: dict[str, Any] | None = None, **fields: Any) -> Pod:
    annotations = {"kubernetes.io/config.source": "file"} if static else {}
    meta = {"name": name, "namespace": "d", "uid": name, "annotations": annotations, **fields.pop("metadata", {})}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests or {}}, **fields.pop("container", {})}]}
    return default_pod(msgspec.convert({"metadata": meta, "spec": spec | fields}, Pod))


def shares(*pods: Pod) -> list[Share]:
    return [Share.of(one) for one in pods]


def judged(one: Pod, *others: Pod, node: NodeInfo = NODE, pressure: tuple[str, ...] = ()) -> tuple[str, str]:
    first = rejection_before_resources(one, node, pressure)
    verdict = first or admit(Share.of(one), shares(*others), node)
    if isinstance(verdict, Rejection):
        return verdict.reason, verdict.message
    return type(verdict).__name__, " ".join(share.pod.metadata.name for share in getattr(verdict, "victims", ()))


OK = ("Admitted", "")
GONE = "example.com/gone"
"""An extended resource of which the node has none any more."""


# Allocatable resources


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, {"cpu": 4000, "memory": 8 * GI - 100 * 2**20, "pods": 110, "hugepages-2Mi": 0}),
        ({"eviction_hard": {}}, {"cpu": 4000, "memory": 8 * GI, "ephemeral-storage": 100 * GI}),
        ({"eviction_hard": {"memory.available": "25%"}}, {"memory": 6 * GI}),
        ({"eviction_hard": {"memory.available": "100%", "nodefs.available": "0%"}}, {"memory": 8 * GI}),
        ({"eviction_hard": {"nodefs.available": "30Gi"}}, {"ephemeral-storage": 70 * GI, "memory": 8 * GI}),
        ({"system_reserved": {"cpu": "500m"}, "kube_reserved": {"cpu": "1", "memory": "1Gi"}, "eviction_hard": {}},
         {"cpu": 2500, "memory": 7 * GI}),
        ({"system_reserved": {"memory": "9Gi"}}, {"memory": 0}),
        ({"kube_reserved": {"ephemeral-storage": "50Gi"}, "eviction_hard": {}}, {"ephemeral-storage": 50 * GI}),
        ({"max_pods": 7}, {"pods": 7}),
        ({"eviction_hard": {"memory.available": "1Gi"}, "allocatable_ignores_eviction": True}, {"memory": 8 * GI}),
    ],
)  # fmt: skip
def test_allocatable(written, expected):
    found = allocatable(MACHINE, Settings(**written))
    assert {name: found[name] for name in expected} == expected


def test_without_isolation_local_storage_is_no_resource():
    settings = Settings(local_storage_capacity_isolation=False, kube_reserved={"ephemeral-storage": "1Gi"})
    assert "ephemeral-storage" not in allocatable(MACHINE, settings)
    assert default_limits(allocatable(MACHINE, settings))["ephemeral-storage"] == 0
    assert allocatable(MACHINE, settings)["memory"] == allocatable(MACHINE, Settings())["memory"]


def test_a_percentage_is_rounded_as_the_kubelet_does():
    machine = Machine(cpus=2, memory_bytes=24684092 * 1024, root_fs_bytes=264212084 * 1024)
    found = allocatable(machine, Settings(eviction_hard={"memory.available": "100Mi", "nodefs.available": "1%"}))
    assert (found["memory"], found["ephemeral-storage"]) == (24581692 * 1024, 267847642337)


def test_huge_pages_and_eviction_threshold_in_allocatable():
    machine = Machine(cpus=1, memory_bytes=8 * GI, huge_page_bytes={"hugepages-1Gi": 2 * GI}, pids=1000)
    settings = Settings(system_reserved={"memory": "1Gi", "pid": "100"}, eviction_hard={"memory.available": "1Gi"})
    assert allocatable(machine, settings)["memory"] == 4 * GI
    assert allocatable(machine, settings)["hugepages-1Gi"] == 2 * GI
    # The limit of all pods includes huge pages, as in the kubelet.
    assert (enforced(machine, settings)["memory"], enforced(machine, settings)["pid"]) == (7 * GI, 900)


# Resources


def short(resource: str, requested: int, used: int, capacity: int) -> tuple[str, str]:
    text = f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    return f"OutOf{resource}", text


@pytest.mark.parametrize(
    ("wanted", "others", "expected"),
    [
        ({}, [], OK),
        ({"cpu": "2", "memory": "4Gi"}, [], OK),
        ({"cpu": "2001m"}, [], short("cpu", 2001, 0, 2000)),
        ({"cpu": "64"}, [{"cpu": "50m"}], short("cpu", 64000, 50, 2000)),
        ({"cpu": "1"}, [{"cpu": "1"}], OK),
        ({"cpu": "1"}, [{"cpu": "1"}, {"cpu": "1m"}], short("cpu", 1000, 1001, 2000)),
        ({"memory": "1Gi"}, [{"memory": "3Gi"}, {"memory": "1Mi"}], short("memory", GI, 3 * GI + 2**20, 4 * GI)),
        ({"cpu": "3", "memory": "5Gi"}, [], short("cpu", 3000, 0, 2000)),
        ({"ephemeral-storage": "11Gi"}, [], short("ephemeral-storage", 11 * GI, 0, 10 * GI)),
        ({"hugepages-2Mi": "4Mi"}, [], short("hugepages-2Mi", 4 * 2**20, 0, 0)),
        ({"hugepages-1Gi": "1Gi"}, [], short("hugepages-1Gi", GI, 0, 0)),
        ({"example.com/gpu": "3"}, [], OK),  # not this node's to count
        ({}, [{}, {}, {}], OK),
        ({}, [{}, {}, {}, {}], short("pods", 1, 4, 4)),
        ({"cpu": "9"}, [{}, {}, {}, {}], short("pods", 1, 4, 4)),
        ({"cpu": "0"}, [{"cpu": "5"}], OK),  # asks for nothing, so nothing of it is short
    ],
)
def test_resources(wanted, others, expected):
    there = [pod(f"o{index}", requests=requests) for index, requests in enumerate(others)]
    assert judged(pod(requests=wanted), *there) == expected


def test_devices_of_the_node_are_counted():
    node = NodeInfo("vm", LABELS, NODE.allocatable | {"example.com/gpu": 2})
    one = pod("a", requests={"example.com/gpu": "1"})
    assert judged(pod(requests={"example.com/gpu": "1"}), one, node=node) == OK
    assert judged(pod(requests={"example.com/gpu": "2"}), one, node=node) == short("example.com/gpu", 2, 1, 2)


CLASS = "deviceclass.resource.kubernetes.io/gpu"


def claiming(*names: str, container: str = "c", **fields: Any) -> Pod:
    """A pod with a claim for these extended resources of a container."""
    mappings = [{"containerName": container, "resourceName": name, "requestName": "r"} for name in names]
    status = {"resourceClaimName": "made", "requestMappings": mappings}
    one = pod(**fields)
    return msgspec.structs.replace(one, status=msgspec.convert({"extendedResourceClaimStatus": status}, PodStatus))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (claiming(CLASS, requests={CLASS: "1"}), OK),
        (pod(requests={CLASS: "1"}), short(CLASS, 1, 0, 0)),
        (claiming(CLASS, container="other", requests={CLASS: "1"}), short(CLASS, 1, 0, 0)),
        (claiming(GONE, requests={GONE: "1"}), OK),
        (claiming(CLASS, requests={GONE: "1"}), short(GONE, 1, 0, 0)),
        (claiming("cpu", requests={"cpu": "3"}), short("cpu", 3000, 0, 2000)),  # no claim stands behind it
        (
            claiming(CLASS, container="i", initContainers=[{"name": "i", "resources": {"requests": {CLASS: "2"}}}]),
            OK,
        ),
    ],
)
def test_what_a_claim_gives_is_not_the_nodes(one: Pod, expected: tuple[str, str]) -> None:
    node = NodeInfo("vm", LABELS, NODE.allocatable | {GONE: 0})
    assert judged(one, node=node) == expected


def test_what_a_claim_gives_takes_nothing_of_the_node() -> None:
    node = NodeInfo("vm", LABELS, NODE.allocatable | {GONE: 1})
    assert judged(pod(requests={GONE: "1"}), claiming(GONE, name="o", requests={GONE: "1"}), node=node) == OK


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"overhead": {"cpu": "1"}}, short("cpu", 2500, 0, 2000)),
        ({"resources": {"requests": {"cpu": "3"}}}, short("cpu", 3000, 0, 2000)),
        ({"resources": {"requests": {"cpu": "1500m"}}}, OK),
        ({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2100m"}}}]}, short("cpu", 2100, 0, 2000)),
        ({"initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}]},
         short("cpu", 2500, 0, 2000)),
    ],
)  # fmt: skip
def test_what_counts_as_a_request(spec, expected):
    assert judged(pod(requests={"cpu": "1500m"}, **spec)) == expected


# Node affinity


def expressions(*rules: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {
        "matchExpressions": [{"key": key, "operator": operator, "values": values} for key, operator, values in rules]
    }


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    inner = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": inner}}


def by_name(operator: str, *names: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(names)}]}


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ({}, True),
        ({"nodeSelector": {"disk": "ssd"}}, True),
        ({"nodeSelector": {"disk": "ssd", "zone": "b"}}, False),
        ({"nodeSelector": {"gpu": "yes"}}, False),
        ({"nodeSelector": {"kubernetes.io/hostname": "vm", "kubernetes.io/os": "linux"}}, True),
        ({"affinity": {}}, True),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": expressions(("disk", "In", ["hdd"]))}]}}}, True),
        (required(), False),
        (required({}), False),
        (required(expressions(("disk", "In", ["hdd", "ssd"]))), True),
        (required(expressions(("disk", "In", ["hdd"]))), False),
        (required(expressions(("gpu", "In", ["ssd"]))), False),
        (required(expressions(("disk", "In", []))), False),
        (required(expressions(("disk", "NotIn", ["hdd"]))), True),
        (required(expressions(("disk", "NotIn", ["ssd"]))), False),
        (required(expressions(("gpu", "NotIn", ["x"]))), True),
        (required(expressions(("gpu", "NotIn", []))), False),
        (required(expressions(("disk", "Exists", []))), True),
        (required(expressions(("disk", "Exists", ["ssd"]))), False),
        (required(expressions(("gpu", "Exists", []))), False),
        (required(expressions(("gpu", "DoesNotExist", []))), True),
        (required(expressions(("disk", "DoesNotExist", []))), False),
        (required(expressions(("rack", "Gt", ["6"]))), True),
        (required(expressions(("rack", "Gt", ["7"]))), False),
        (required(expressions(("rack", "Lt", ["8"]))), True),
        (required(expressions(("rack", "Lt", ["7"]))), False),
        (required(expressions(("rack", "Gt", ["six"]))), False),
        (required(expressions(("rack", "Gt", ["1" * 5000]))), False),
        (required(expressions(("none", "Lt", ["-" + "0" * 30 + "9" * 20]))), False),
        (required(expressions(("rack", "Gt", ["0" * 30 + "6"]))), True),
        (required(expressions(("rack", "Gt", ["1", "2"]))), False),
        (required(expressions(("disk", "Gt", ["1"]))), False),
        (required(expressions(("gpu", "Lt", ["1"]))), False),
        (required(expressions(("disk", "Near", ["ssd"]))), False),
        (required(expressions(("disk", "In", ["hdd"])), expressions(("zone", "In", ["a"]))), True),
        (required(expressions(("disk", "In", ["ssd"]), ("zone", "In", ["b"]))), False),
        (required(by_name("In", "vm")), True),
        (required(by_name("In", "other")), False),
        (required(by_name("NotIn", "other")), True),
        (required(by_name("NotIn", "vm")), False),
        (required(by_name("In", "vm", "other")), False),
        (required(by_name("Exists")), False),
        (required(by_name("In", "vm", key="metadata.uid")), False),
        (required(by_name("In", "vm") | expressions(("disk", "In", ["hdd"]))), False),
        (required(by_name("In", "vm") | expressions(("disk", "In", ["ssd"]))), True),
        ({"nodeSelector": {"disk": "hdd"}} | required(by_name("In", "vm")), False),
    ],
)  # fmt: skip
def test_node_affinity(spec, chosen):
    assert affinity.matches(pod(**spec), LABELS, "vm") is chosen


REFUSED = ("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")


@pytest.mark.parametrize("static", [True, False])
def test_the_words_for_another_node(static):
    assert judged(pod(static=static, nodeSelector={"disk": "hdd"})) == REFUSED
    expected = ("NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name")
    assert judged(pod(static=static, nodeName="other")) == expected
    assert judged(pod(static=static, nodeName="vm")) == OK


# Ports


def ports(*wanted: dict[str, Any]) -> dict[str, Any]:
    return {"container": {"ports": [{"containerPort": 80, **one} for one in wanted]}}


@pytest.mark.parametrize(
    ("mine", "theirs", "free"),
    [
        ({"hostPort": 80}, {"hostPort": 81}, True),
        ({"hostPort": 80}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, True),
        ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80, "hostIP": "127.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80, "hostIP": "127.0.0.1"}, False),
        ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 80, "hostIP": "127.0.0.1"}, False),
        ({"hostPort": 80, "hostIP": "0.0.0.0"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, False),
        ({}, {"hostPort": 80}, True),
        ({"hostPort": 0}, {"hostPort": 0}, True),
    ],
)
def test_host_ports(mine, theirs, free):
    expected = ("NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
    assert judged(pod(**ports(mine)), pod("o", **ports(theirs))) == (OK if free else expected)


def test_ports_of_sidecars_count_but_not_of_init_containers():
    init = {"name": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}
    other = pod("o", initContainers=[init])
    assert judged(pod(**ports({"hostPort": 80})), other) == OK
    other = pod("o", initContainers=[init | {"restartPolicy": "Always"}])
    assert judged(pod(**ports({"hostPort": 80})), other)[0] == "NodePorts"


def test_a_pod_on_the_nodes_network_takes_the_ports_it_declares():
    assert judged(pod(hostNetwork=True, **ports({})), pod("o", **ports({"hostPort": 80})))[0] == "NodePorts"


# Taints

MAINTENANCE = Taint(key="maintenance", value="disk", effect="NoExecute")


@pytest.mark.parametrize(
    ("toleration", "borne"),
    [
        (None, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "maintenance", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "maintenance", "value": "disk"}, True),
        ({"key": "maintenance", "operator": "Equal", "value": "disk", "effect": "NoExecute"}, True),
        ({"key": "maintenance", "operator": "Equal", "value": "cpu"}, False),
        ({"key": "maintenance"}, False),
        ({"operator": "Equal", "value": "disk"}, False),
        ({"key": "maintenance", "operator": "Lt", "value": "disk"}, False),
        ({"key": "maintenance", "operator": "Exists", "tolerationSeconds": 5}, True),
    ],
)
def test_taints(toleration, borne):
    node = NodeInfo("vm", LABELS, NODE.allocatable, (Taint(key="x", effect="NoSchedule"), MAINTENANCE))
    refused = (
        "TaintToleration",
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    )
    one = pod(tolerations=[toleration] if toleration else [])
    assert judged(one, node=node) == (OK if borne else refused)
    assert judged(pod(static=True), node=node) == OK


@pytest.mark.parametrize(
    ("operator", "bound", "value", "borne"),
    [
        ("Gt", "950", "951", True),
        ("Gt", "950", "950", False),
        ("Lt", "950", "949", True),
        ("Lt", "950", "950", False),
        ("Lt", "1000", "0950", True),
        ("Gt", "-5", "-4", True),
        ("Gt", str(2**63 - 2), str(2**63 - 1), True),
        ("Gt", "0", str(2**63), False),
        ("Lt", "0", "-" + "9" * 5000, False),
        ("Lt", "950", "", False),
        ("Lt", "950", "94.5", False),
        ("Gt", "slow", "951", False),
        ("Gt", None, "951", False),
        ("Lt", "950", "\u0669", False),
    ],
)
def test_comparing_tolerations_need_their_gate(operator, bound, value, borne):
    node = NodeInfo("vm", LABELS, NODE.allocatable, (Taint(key="sla", value=value, effect="NoExecute"),))
    one = pod(tolerations=[{"key": "sla", "operator": operator, "value": bound, "effect": "NoExecute"}])
    assert judged(one, node=node)[0] == "TaintToleration"
    assert (judged(one, node=replace(node, compare_taint_values=True)) == OK) is borne


def test_comparing_toleration_names_its_taint():
    node = NodeInfo("vm", LABELS, NODE.allocatable, (MAINTENANCE,), compare_taint_values=True)
    assert judged(pod(tolerations=[{"key": "sla", "operator": "Gt", "value": "1"}]), node=node)[0] == "TaintToleration"


def test_gate_of_comparing_tolerations_reaches_admission():
    assert not node_info(Settings(), MACHINE).compare_taint_values
    assert node_info(Settings(compare_taint_values=True), MACHINE).compare_taint_values


# Features of kernel, runtime and operating system


@pytest.mark.parametrize(
    ("name", "spec", "problem"),
    [
        ("kernel.shm_rmid_forced", {}, ""),
        ("net.ipv4.tcp_rmem", {}, ""),
        ("net/ipv4/ping_group_range", {}, ""),
        ("kernel.msgmax", {}, ""),
        ("net.core.somaxconn", {}, ""),
        ("net/ipv4/conf/eth0.1/rp_filter", {}, ""),
        ("net.ipv4.conf.eth0/1.rp_filter", {}, ""),
        ("kernel.sem", {}, '"kernel.sem" not allowlisted'),
        ("vm.swappiness", {}, '"vm.swappiness" not allowlisted'),
        ("net/ipv4/ip_forward", {}, '"net.ipv4.ip_forward" not allowlisted'),
        ("kernel.msgmax", {"hostIPC": True}, '"kernel.msgmax" not allowed with host IPC enabled'),
        ("kernel.msgmax", {"hostNetwork": True}, ""),
        ("net.core.somaxconn", {"hostNetwork": True}, '"net.core.somaxconn" not allowed with host Net enabled'),
        ("net.ipv4.tcp_rmem", {"hostNetwork": True}, '"net.ipv4.tcp_rmem" not allowed with host Net enabled'),
    ],
)  # fmt: skip
def test_sysctls(name, spec, problem):
    one = pod(securityContext={"sysctls": [{"name": name, "value": "1"}]}, **spec)
    assert judged(one) == (("SysctlForbidden", f"forbidden sysctl: {problem}") if problem else OK)


@pytest.mark.parametrize(
    ("release", "name", "allowed"),
    [
        ("6.1.0-9-amd64", "net.ipv4.tcp_wmem", True),
        ("4.14.0", "net.ipv4.tcp_wmem", False),
        ("4.6.1+", "net.ipv4.tcp_fin_timeout", True),
        ("4.5", "net.ipv4.tcp_fin_timeout", False),
        ("3.10.0-1160.el7", "net.ipv4.ip_local_reserved_ports", False),
        ("3.10.0-1160.el7", "net.ipv4.ip_unprivileged_port_start", True),
        ("whatever", "net.ipv4.tcp_keepalive_time", False),
    ],
)
def test_safe_sysctls_by_kernel(release, name, allowed):
    assert (Allowlist.of((), release).problem(name, host_network=False, host_ipc=False) == "") is allowed


@pytest.mark.parametrize(
    ("written", "read"),
    [("net/ipv4/a", "net.ipv4.a"), ("net.ipv4.a", "net.ipv4.a"), ("net/conf/e.1/f", "net.conf.e/1.f"), ("a", "a")],
)
def test_separators_of_sysctls(written, read):
    assert dotted(written) == read


OS_LABEL = (
    "PodOSSelectorNodeLabelDoesNotMatch",
    "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
)
OS_FIELD = ("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
GROUPS = ("SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node")
NO_APP_ARMOR = ("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
ANNOTATION = "container.apparmor.security.beta.kubernetes.io/c"


def profile(kind: str, name: str | None = None) -> dict[str, Any]:
    return {"appArmorProfile": {"type": kind} | ({"localhostProfile": name} if name is not None else {})}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"os": {"name": "linux"}}, OK),
        ({"os": {"name": "windows"}}, OS_FIELD),
        ({"metadata": {"labels": {"kubernetes.io/os": "linux"}}}, OK),
        ({"metadata": {"labels": {"kubernetes.io/os": "windows"}}}, OS_LABEL),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}}, REFUSED),
        ({"securityContext": {"supplementalGroupsPolicy": "Merge"}}, OK),
        ({"securityContext": {"supplementalGroupsPolicy": "Strict"}}, GROUPS),
        ({"securityContext": profile("Unconfined")}, OK),
        ({"securityContext": profile("RuntimeDefault")}, NO_APP_ARMOR),
        ({"container": {"securityContext": profile("Localhost", "p")}}, NO_APP_ARMOR),
        ({"metadata": {"annotations": {ANNOTATION: "unconfined"}}}, OK),
        ({"metadata": {"annotations": {ANNOTATION: "runtime/default"}}}, NO_APP_ARMOR),
    ],
)
@pytest.mark.parametrize("static", [True, False])
def test_what_the_node_cannot_do(fields, expected, static):
    one = pod(**fields)
    if static:
        meta = one.metadata
        annotations = meta.annotations | {"kubernetes.io/config.source": "file"}
        one = msgspec.structs.replace(one, metadata=msgspec.structs.replace(meta, annotations=annotations))
    assert judged(one) == expected


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        (profile("RuntimeDefault"), ""),
        (profile("Localhost", "mine"), ""),
        (profile("Localhost"), "missing localhost apparmor profile name"),
        (profile("Localhost", " "), 'invalid localhost apparmor profile name: " "'),
    ],
)
def test_a_node_with_everything(context, problem):
    node = NodeInfo("vm", LABELS, NODE.allocatable, app_armor=True, features=RuntimeFeatures(True))
    one = pod(container={"securityContext": context}, securityContext={"supplementalGroupsPolicy": "Strict"})
    expected = ("AppArmor", f"Cannot enforce AppArmor: {problem}") if problem else OK
    assert judged(one, node=node) == expected


@pytest.mark.parametrize("name", ["", " "])
@pytest.mark.parametrize("of_pod", [{}, profile("RuntimeDefault")], ids=["alone", "beside the pod's profile"])
def test_annotated_localhost_profile_without_a_name(name, of_pod):
    node = NodeInfo("vm", LABELS, NODE.allocatable, app_armor=True)
    one = pod(metadata={"annotations": {ANNOTATION: f"localhost/{name}"}}, securityContext=of_pod)
    problem = f'Cannot enforce AppArmor: invalid localhost apparmor profile name: "{name}"'
    assert judged(one, node=node) == ("AppArmor", problem)


# Pressure

BEARS_IT = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}


@pytest.mark.parametrize(
    ("fields", "conditions", "let_in"),
    [
        ({}, (), True),
        ({}, ("MemoryPressure",), False),
        ({"requests": {"cpu": "1m"}}, ("MemoryPressure",), True),
        ({"requests": {"cpu": "1m"}}, ("MemoryPressure", "DiskPressure"), False),
        ({"requests": {"cpu": "1m"}}, ("DiskPressure",), False),
        ({"requests": {"cpu": "1m"}}, ("PIDPressure",), False),
        ({"static": True}, ("DiskPressure", "MemoryPressure"), True),
        ({"priority": 2_000_000_000}, ("DiskPressure",), True),
        ({"priority": 1_999_999_999}, ("DiskPressure",), False),
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, ("DiskPressure",), True),
        ({"tolerations": [BEARS_IT]}, ("MemoryPressure",), True),
        ({"tolerations": [BEARS_IT]}, ("DiskPressure",), False),
    ],
)  # fmt: skip
def test_pressure(fields, conditions, let_in):
    text = f"The node had condition: [{' '.join(sorted(conditions))}]. "
    assert judged(pod(**fields), pressure=conditions) == (OK if let_in else ("Evicted", text))


# Preemption

NOBODY = (
    "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to "
    "preempt: no set of running pods found to reclaim resources: [{}]"
)


def guaranteed(name: str, cpu: str, memory: str = "1Mi", **fields: Any) -> Pod:
    limits = {"cpu": cpu, "memory": memory}
    return pod(name, container={"resources": {"requests": limits, "limits": limits}}, **fields)


@pytest.mark.parametrize(
    ("wanted", "others", "expected"),
    [
        # no pod to evict
        ({"cpu": "64"}, [], ("UnexpectedAdmissionError", NOBODY.format("(res: cpu, q: 62000), "))),
        ({"cpu": "3", "memory": "5Gi"}, [],
         ("UnexpectedAdmissionError", NOBODY.format(f"(res: cpu, q: 1000), (res: memory, q: {GI}), "))),
        ({"cpu": "2"}, [pod("s", static=True, requests={"cpu": "1"})],
         ("UnexpectedAdmissionError", NOBODY.format("(res: cpu, q: 1000), "))),
        # enough free resources
        ({"cpu": "1"}, [pod("a", requests={"cpu": "1"})], OK),
        # BestEffort pods only count as pods
        ({"cpu": "2"}, [pod("b"), pod("a", requests={"cpu": "1"})], ("Preempt", "a")),
        ({}, [pod("b"), pod("a", requests={"cpu": "1m"}), pod("c"), guaranteed("g", "1m")], ("Preempt", "c")),
        # a Burstable one rather than a Guaranteed one, even a larger
        ({"cpu": "1"}, [guaranteed("g", "500m"), pod("a", requests={"cpu": "1500m"})], ("Preempt", "a")),
        ({"cpu": "1500m"}, [guaranteed("g", "1"), pod("a", requests={"cpu": "500m"})], ("Preempt", "g")),
        # one pod that covers the need, rather than two
        ({"cpu": "1"}, [pod("a", requests={"cpu": "500m"}), pod("b", requests={"cpu": "500m"}),
                        pod("c", requests={"cpu": "1"})], ("Preempt", "c")),
        # among pods that cover the need, the smallest: memory first, then cpu
        ({"cpu": "1"}, [pod("a", requests={"cpu": "1", "memory": "2Gi"}),
                        pod("b", requests={"cpu": "1", "memory": "1Gi"})], ("Preempt", "b")),
        ({"cpu": "1", "memory": "1Gi"}, [pod("a", requests={"cpu": "2", "memory": "4Gi"})], ("Preempt", "a")),
        # both resources weigh the same
        ({"cpu": "2", "memory": "4Gi"}, [pod("a", requests={"cpu": "1"}), pod("b", requests={"memory": "2Gi"})],
         ("Preempt", "a b")),
        # a critical API pod is spared as well as a static one
        ({"cpu": "2"}, [pod("k", requests={"cpu": "1"}, priority=2_000_001_000), pod("a", requests={"cpu": "1"})],
         ("UnexpectedAdmissionError", NOBODY.format("(res: cpu, q: 1000), "))),
    ],
)  # fmt: skip
def test_a_critical_pod_makes_itself_room(wanted, others, expected):
    assert judged(pod(static=True, requests=wanted), *others) == expected


def test_a_pod_is_evicted_for_what_its_containers_still_have():
    shrinks = Share.of(pod("a", requests={"cpu": "500m"}), resources_of(pod("a", requests={"cpu": "2"})))
    (victim,) = preemption.victims(pod(static=True), [shrinks], [Shortage("cpu", 1500, 2000, 2000)])
    assert victim is shrinks


@pytest.mark.parametrize(
    ("allocated", "actuated", "held"),
    [
        ({"cpu": "1", "memory": "1Gi"}, None, (1000, GI)),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1024Mi"}, (1000, GI)),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "512Mi"}, (2000, GI)),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "500m", "memory": "3Gi"}, (1000, 3 * GI)),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "2"}, (2000, GI)),
        ({"cpu": "1"}, {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}, (1000, GI)),
    ],
)
def test_a_share_holds_the_larger_of_allocated_and_actuated(allocated, actuated, held):
    record = None if actuated is None else resources_of(pod(requests=actuated))
    share = Share.of(pod(requests=allocated), record)
    assert share.requests == Share.of(pod(requests=allocated)).requests
    assert (share.held["cpu"], share.held["memory"]) == held
    assert "example.com/gpu" not in share.held, "a resize changes CPU and memory alone"


def test_a_pods_own_resources_are_held_until_they_are_less():
    def sized(cpu: str) -> Pod:
        return pod(resources={"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}, overhead={"cpu": "100m"})

    share = Share.of(sized("1"), resources_of(sized("2")))
    assert (share.requests["cpu"], share.held["cpu"]) == (1100, 2100)


def test_a_resize_may_reach_the_eviction_threshold_of_the_node():
    settings = Settings(node_name="vm", eviction_hard={"memory.available": "100Mi"}, kube_reserved={"memory": "1Gi"})
    node = node_info(settings, MACHINE)
    assert (node.enforced["memory"], node.enforced["cpu"]) == (7 * GI, 4000)
    assert node.allocatable["memory"] == 7 * GI - (100 << 20)


def test_between_critical_pods_priority_decides():
    low = pod("low", static=True, requests={"cpu": "2"}, priority=5)
    assert judged(pod(static=True, requests={"cpu": "1"}, priority=6), low) == ("Preempt", "low")
    assert judged(pod(static=True, requests={"cpu": "1"}, priority=5), low)[0] == "UnexpectedAdmissionError"
    assert judged(pod(static=True, requests={"cpu": "1"}), low)[0] == "UnexpectedAdmissionError"
    assert judged(pod(requests={"cpu": "1"}, priority=6), low)[0] == "OutOfcpu"


def test_no_preemption_for_pod_that_fails_other_checks():
    low = pod("low", requests={"cpu": "2"})
    assert judged(pod(static=True, requests={"cpu": "1"}, nodeSelector={"disk": "hdd"}), low) == REFUSED
    assert (
        judged(pod(static=True, requests={"cpu": "1"}, securityContext=profile("RuntimeDefault")), low) == NO_APP_ARMOR
    )


def test_a_verdict_names_the_pods_that_go():
    verdict = admit(Share.of(pod(static=True, requests={"cpu": "1"})), shares(pod("a", requests={"cpu": "2"})), NODE)
    assert isinstance(verdict, Preempt)
    assert verdict.victims[0].pod.metadata.uid == "a"
    assert isinstance(admit(Share.of(pod()), (), NODE), Admitted)
    assert Rejection("r", "m").status_message == "Pod was rejected: m"
