"""Checks a pod's tolerations against the node's taints. Pure.

Source: k8s.io/api/core/v1 (ToleratesTaint) and https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
The operators Lt and Gt are behind a feature gate that is off (KEP-5471).
"""

from __future__ import annotations

from collections.abc import Iterable

from proto.agent.settings import Taint
from proto.v1 import Pod, Toleration

MEMORY_PRESSURE = Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule")


def untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """The first NoExecute taint that the pod does not tolerate. The scheduler checks the other effects."""
    for taint in taints:
        if taint.effect == "NoExecute" and not tolerated(pod, taint):
            return taint
    return None


def tolerated(pod: Pod, taint: Taint) -> bool:
    """Return True when one of the pod's tolerations matches the taint."""
    return any(_tolerates(one, taint) for one in pod.spec.tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Equal":
            # Without a key, only Exists matches every taint.
            return bool(toleration.key) and (toleration.value or "") == taint.value
        case "Exists":
            return True
    return False
