"""Checks a pod's tolerations against the node's taints. Pure.

Source: k8s.io/api/core/v1 (ToleratesTaint) and https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
The operators Lt and Gt need the feature gate TaintTolerationComparisonOperators, which is off by default (KEP-5471).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from proto.agent.settings import Taint
from proto.v1 import Pod, Toleration

MEMORY_PRESSURE = Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule")
_INTEGER = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
"""Sign, and digits without leading zeros."""
_MOST_DIGITS = 19
_INT64 = range(-(2**63), 2**63)


def untolerated(pod: Pod, taints: Iterable[Taint], *, compare: bool = False) -> Taint | None:
    """The first NoExecute taint that the pod does not tolerate. The scheduler checks the other effects.

    `compare`: the operators Lt and Gt have an effect. Without it, tolerations with them tolerate nothing.
    """
    for taint in taints:
        if taint.effect == "NoExecute" and not tolerated(pod, taint, compare=compare):
            return taint
    return None


def tolerated(pod: Pod, taint: Taint, *, compare: bool = False) -> bool:
    """Return True when one of the pod's tolerations matches the taint. `compare` as in `untolerated`."""
    return any(_tolerates(one, taint, compare) for one in pod.spec.tolerations)


def _tolerates(toleration: Toleration, taint: Taint, compare: bool) -> bool:
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
        case "Lt" | "Gt" as operator if compare:
            return _compares(taint.value or "", operator, toleration.value or "")
    return False


def _compares(value: str, operator: str, bound: str) -> bool:
    left, right = _int64(value), _int64(bound)
    if left is None or right is None:
        return False
    return left < right if operator == "Lt" else left > right


def _int64(text: str) -> int | None:
    """The number of a value, as Go's ParseInt reads it in base 10; None for text that is no 64-bit integer."""
    found = _INTEGER.fullmatch(text)
    # Python refuses to convert a text of thousands of digits.
    if found is None or len(found[2]) > _MOST_DIGITS:
        return None
    number = int(found[1] + found[2])
    return number if number in _INT64 else None
