"""Chooses the specs of test/e2e_node. The suite also has those of test/e2e/common, which the other suite runs."""

from __future__ import annotations

from collections.abc import Mapping

SIDE_BY_SIDE = (
    r"ContainerLogPath",
    r"ImageID",
    r"MirrorPod",
    r"Hostname of Pod",
    r"Kubelet Cgroup Manager",
    r"ResourceMetricsAPI",
    r"Container Runtime Conformance",
    r"PodOverhead handling",
    r"Security Context",
    r"Summary API",
    r"Kubelet Volume Manager",
)
"""Regular expressions of Go: specs that leave the node as it is."""
ALONE = (
    r"ContainerLogRotation",
    r"Container Manager Misc",
    r"CPU Manager",
    r"Device Plugin",
    r"PodPidsLimit",
    r"Topology Manager",
)
"""The same of those that need the node for themselves, most with a configuration of their own."""
SERIAL = r"\[Serial\]"
LEFT_OUT: Mapping[str, str] = {
    r"\[Feature:Docker\]|sharing a pod namespace": "dockershim, or the version of a Docker daemon",
    r"be able to pull|pull from private|pull image": "images of public registries",
    r"ImageID": "an image of a public registry by its digest",
    r"Kubelet's oom-score-adj": "a process with the name kubelet",
    r"container runtime's oom-score-adj": "a runtime whose unit sets it; the kubelet sets none since dockershim",
    r"host PID namespace": "a process with the name nginx; the stand-in's is httpd",
    r"ResourceMetricsAPI": "the metrics of 1.20 and no others; there are more since",
    r"PodOverhead": "a runtime handler test-handler, which this containerd does not have",
}
"""Regular expressions of Go, and what their specs need."""


def skip() -> str:
    """For `-skip`."""
    return "|".join(LEFT_OUT)
