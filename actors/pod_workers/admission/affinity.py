"""Checks a pod's nodeSelector and required node affinity against this node. Pure.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity and
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from __future__ import annotations

from collections.abc import Mapping

from actors._host.node import selector
from proto.v1 import Pod


def matches(pod: Pod, labels: Mapping[str, str], node_name: str) -> bool:
    """True if both the selector and the affinity choose the node."""
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return required is None or selector.matches_selector(required, labels, node_name)
