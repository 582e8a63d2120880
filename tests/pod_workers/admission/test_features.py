"""A pod is refused for a sysctl that is not allowed, and for a feature that the node lacks."""

from __future__ import annotations

import msgspec
import pytest

from actors._host.node.sysctl import dotted
from actors.pod_workers.admission import NodeInfo, RuntimeFeatures
from actors.pod_workers.admission.sysctls import Allowlist
from tests.pod_workers.admission.pods import LABELS, NO_APP_ARMOR, NODE, OK, REFUSED, judged, pod, profile


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
ANNOTATION = "container.apparmor.security.beta.kubernetes.io/c"


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
