"""Matches node selectors, of pod affinity and of volume topology, against this node's labels. Pure.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity and k8s.io/apimachinery/pkg/labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from actors._host.machine import architecture
from proto.v1 import NodeSelectorRequirement, NodeSelectorTerm
from proto.v1.meta import LabelSelectorRequirement
from proto.v1.scheduling import NodeSelector

_INTEGER = re.compile(r"[+-]?0*[0-9]{1,19}", re.ASCII)
"""Longer numbers are beyond 64 bits. Python refuses to convert one of thousands of digits."""
_INT64 = 1 << 63


def node_labels(node_name: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of this node: the default ones and `own`, from --node-labels."""
    return default_labels(node_name, architecture()) | dict(own)


def default_labels(node_name: str, arch: str) -> dict[str, str]:
    """Return the labels that a kubelet gives every node."""
    return {
        "beta.kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch,
        "kubernetes.io/hostname": node_name,
        "kubernetes.io/os": "linux",
    }


def matches_selector(selector: NodeSelector, labels: Mapping[str, str], node_name: str) -> bool:
    """Return True when at least one term of the selector matches."""
    return any(_term(term, labels, {"metadata.name": node_name}) for term in selector.node_selector_terms)


def _term(term: NodeSelectorTerm, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    if not term.match_expressions and not term.match_fields:  # as in Kubernetes, an empty term matches nothing
        return False
    return all(matches_requirement(one, labels) for one in term.match_expressions) and all(
        _field(one, fields) for one in term.match_fields
    )


def matches_requirement(
    requirement: NodeSelectorRequirement | LabelSelectorRequirement, labels: Mapping[str, str]
) -> bool:
    """Return True when the labels match. An unknown operator or a wrong number of values never matches."""
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
    """Compare a field with exactly one value. A node has only metadata.name; any other field is empty."""
    if len(requirement.values) != 1 or requirement.operator not in ("In", "NotIn"):
        return False
    same = fields.get(requirement.key, "") == requirement.values[0]
    return same if requirement.operator == "In" else not same


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None
