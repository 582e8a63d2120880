"""Whether a pod's nodeSelector and required node affinity choose this node. Pure.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity, k8s.io/apimachinery/pkg/labels and
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from proto.v1 import NodeSelectorRequirement, NodeSelectorTerm, Pod

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64 = 1 << 63


def matches(pod: Pod, labels: Mapping[str, str], node_name: str) -> bool:
    """Both the selector and the affinity have to choose the node."""
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return True
    return any(_term(term, labels, {"metadata.name": node_name}) for term in required.node_selector_terms)


def _term(term: NodeSelectorTerm, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """One that is empty chooses nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_expression(one, labels) for one in term.match_expressions) and all(
        _field(one, fields) for one in term.match_fields
    )


def _expression(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """One that makes no sense (an unknown operator, a wrong number of values) chooses nothing."""
    present, values = requirement.key in labels, requirement.values
    match requirement.operator:
        case "In":
            return present and labels[requirement.key] in values
        case "NotIn":
            return bool(values) and (not present or labels[requirement.key] not in values)
        case "Exists":
            return present and not values
        case "DoesNotExist":
            return not present and not values
        case "Gt" | "Lt":
            bound = _integer(values[0]) if len(values) == 1 else None
            own = _integer(labels[requirement.key]) if present else None
            greater = requirement.operator == "Gt"
            return bound is not None and own is not None and (own > bound if greater else own < bound)
    return False


def _field(requirement: NodeSelectorRequirement, fields: Mapping[str, str]) -> bool:
    """Fields are compared with exactly one value; a node has only metadata.name, any other is empty."""
    if len(requirement.values) != 1 or requirement.operator not in ("In", "NotIn"):
        return False
    same = fields.get(requirement.key, "") == requirement.values[0]
    return same if requirement.operator == "In" else not same


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None
