"""Pods, a node, and the verdict of admission on them."""

from __future__ import annotations

from typing import Any

import msgspec

from actors._host.machine import Machine
from actors._host.node.selector import default_labels
from actors.config.defaulting.defaults import default_pod
from actors.pod_workers.admission import NodeInfo, Rejection, Share, admit, rejection_before_resources
from actors.pod_workers.admission.sysctls import Allowlist
from proto.v1 import Pod

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
REFUSED = ("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
NO_APP_ARMOR = ("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")


def profile(kind: str, name: str | None = None) -> dict[str, Any]:
    return {"appArmorProfile": {"type": kind} | ({"localhostProfile": name} if name is not None else {})}


def guaranteed(name: str, cpu: str, memory: str = "1Mi", **fields: Any) -> Pod:
    limits = {"cpu": cpu, "memory": memory}
    return pod(name, container={"resources": {"requests": limits, "limits": limits}}, **fields)
