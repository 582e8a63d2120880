"""Which pods the node cannot do without. Pure.

Source: pkg/kubelet/types/pod_update.go, https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
"""

from __future__ import annotations

from proto.v1 import Pod

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
SOURCE_ANNOTATION = "kubernetes.io/config.source"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


def is_static(pod: Pod) -> bool:
    """Whether the pod comes from the node itself (a file or a URL) rather than from the API server."""
    return pod.metadata.annotations.get(SOURCE_ANNOTATION, "api") != "api"


def is_critical(pod: Pod) -> bool:
    """Whether the pod is admitted under pressure and never evicted: static, mirror, or of system-critical priority.

    Static pods are among them because an evicted one would not be admitted again.
    """
    return (
        is_static(pod)
        or MIRROR_ANNOTATION in pod.metadata.annotations
        or (pod.spec.priority or 0) >= SYSTEM_CRITICAL_PRIORITY
    )


def is_node_critical(pod: Pod) -> bool:
    """Whether the kernel is to spare it as long as a Guaranteed pod."""
    return is_critical(pod) and pod.spec.priority_class_name == "system-node-critical"
