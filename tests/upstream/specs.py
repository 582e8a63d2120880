"""Chooses the specs of upstream to run: on one node, side by side, without image or server from outside."""

from __future__ import annotations

from collections.abc import Mapping

FOCUS = (
    r"\[NodeConformance\]",
    r"\[k8s.io\]",
    r"\[sig-node\]",
    r"\[sig-storage\] (EmptyDir|ConfigMap|Secrets|Projected|Downward|HostPath|Subpath)",
    r"\[sig-storage\] (PersistentVolumes-local|Ephemeral)",
    r"Driver: (emptydir|hostPath|hostPathSymlink|local)\]",
    r"\[sig-cli\] Kubectl (client|Port forwarding)",
    r"\[sig-auth\] (ServiceAccounts|\[Feature:Node)",
    r"\[sig-apps\] (Deployment|DisruptionController|Job|ReplicaSet|ReplicationController|StatefulSet)",
    r"\[sig-network\] (Proxy version|DNS should support configurable pod DNS nameservers)",
    r"\[sig-scheduling\] LimitRange",
    r"\[sig-storage\] (PV Protection|Volumes ConfigMap)",
)
"""Regular expressions of Go; a spec that matches one is run."""
LEFT_OUT: Mapping[str, str] = {
    r"\[Serial\]|\[Disruptive\]|\[Slow\]|\[Feature:([^N]|N[^o])|\[Flaky\]": "upstream runs them apart",
    r"Pods sharing a single local PV": "a machine of its own: its fsGroup takes all of /tmp",
    r"be able to pull|pull from private|a private image": "images of public registries",
    r"Guestbook|Update Demo|should create and stop a|scale a replication": "images of demonstrations",
    r"NodePort|clusterIP|handle in-cluster|cluster-info|load-balancer": "kube-proxy or DNS",
    r"validation|CustomResource|CRD": "custom resources, which no node has to do with",
    r"exec through": "an HTTP proxy on loopback, which clients do not use for loopback",
    r"[gG]luster|nfs|gce-localssd|Dynamic": "storage servers or devices",
    r"Mount propagation|a configured handler|RuntimeClass with scheduling": "a node that is set up for them",
    r"never report success for a pending container": "a rule that 1.36 has loosened: 137 of a container never seen",
    r"enable privileged commands": "dummy network devices, which a kernel may lack",
    r"node-pod communication: udp": "netcat for UDP, which busybox may not have",
}
"""Regular expressions of Go, and what their specs need."""


def focus() -> str:
    """For `-focus`."""
    return "|".join(FOCUS)


def skip() -> str:
    """For `-skip`."""
    return "|".join(LEFT_OUT)
