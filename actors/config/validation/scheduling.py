"""The API's rules for fields that the scheduler reads: tolerations, nodeSelector, readinessGates.

A node does not need them. But the API server refuses the mirror pod of a static pod that breaks them, so that the
cluster would never see the pod. Source: ValidateTolerations and ValidateLabels of Kubernetes 1.36.
"""

import re
from collections.abc import Iterator

from actors.config.validation import rules
from actors.config.validation.problems import Path, Violation
from proto.v1 import PodSpec, Toleration

OPERATORS = ("Equal", "Exists", "Lt", "Gt")
"""The last two need the gate TaintTolerationComparisonOperators, which a cluster may have turned on."""
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_INT64 = range(-(2**63), 2**63)
_LONGEST_INTEGER = 20
"""Digits and sign of the longest 64-bit integer. Python refuses to convert a text of thousands of digits."""


def validate_scheduling(at: Path, spec: PodSpec) -> Iterator[Violation]:
    """Yield the violations of nodeSelector, readinessGates and tolerations."""
    for key, value in spec.node_selector.items():
        yield from rules.qualified_name(at / "nodeSelector", key)
        yield from rules.label_value(at / "nodeSelector" / key, value)
    for index, gate in enumerate(spec.readiness_gates):
        yield from rules.qualified_name(at / "readinessGates" / index / "conditionType", gate.condition_type)
    for index, toleration in enumerate(spec.tolerations):
        yield from _toleration(at / "tolerations" / index, toleration)


def _toleration(path: Path, toleration: Toleration) -> Iterator[Violation]:
    operator, value, effect = toleration.operator or "Equal", toleration.value or "", toleration.effect
    if toleration.key:
        yield from rules.qualified_name(path / "key", toleration.key)
    elif operator != "Exists":
        problem = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield rules.invalid(path / "operator", toleration.operator or "", problem)
    yield from rules.one_of(path / "operator", operator, OPERATORS)
    if operator == "Equal":
        yield from rules.label_value(path / "value", value)
    elif operator == "Exists" and value:
        yield rules.invalid(path / "value", value, "value must be empty when `operator` is 'Exists'")
    elif operator in ("Lt", "Gt") and not _is_int64(value):
        yield rules.invalid(path / "value", value, f"must be a 64-bit integer when `operator` is '{operator}'")
    if effect:
        yield from rules.one_of(path / "effect", effect, EFFECTS)
    if toleration.toleration_seconds is not None and effect != "NoExecute":
        yield rules.invalid(path / "effect", effect or "", "effect must be 'NoExecute' when `tolerationSeconds` is set")


def _is_int64(value: str) -> bool:
    return len(value) <= _LONGEST_INTEGER and _INTEGER.fullmatch(value) is not None and int(value) in _INT64
