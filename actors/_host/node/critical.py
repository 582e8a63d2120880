"""Classifies static pods and critical pods. Pure.

Source: pkg/kubelet/types/pod_update.go, https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
"""

from __future__ import annotations

from proto.v1 import Pod

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
SOURCE_ANNOTATION = "kubernetes.io/config.source"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


def is_static(pod: Pod) -> bool:
    """Return True when the pod comes from a file or a URL instead of the API server."""
    return pod.metadata.annotations.get(SOURCE_ANNOTATION, "api") != "api"


def is_critical(pod: Pod) -> bool:
    """Return True for a static, mirror or system-critical pod, which is admitted under pressure and never evicted.

    Static pods count because an evicted static pod would not be admitted again.
    """
    return (
        is_static(pod)
        or MIRROR_ANNOTATION in pod.metadata.annotations
        or (pod.spec.priority or 0) >= SYSTEM_CRITICAL_PRIORITY
    )


def is_node_critical(pod: Pod) -> bool:
    """Return True when the pod gets the OOM score of a Guaranteed pod."""
    return is_critical(pod) and pod.spec.priority_class_name == "system-node-critical"
