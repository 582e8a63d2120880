"""The checks of a fault before it is injected."""

from __future__ import annotations

import math
from typing import Any

import pytest

from proto.agent.faults import KINDS, Fault, wrong

ACTORS = frozenset({"a", "b"})
GOOD: dict[str, dict[str, Any]] = {
    "actor": {"actor": "a"},
    "peer": {"actor": "a", "peer": "b"},
    "pod": {"words": ("uid",)},
    "agent": {},
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_accepted_with_what_it_needs(kind: str) -> None:
    assert wrong(Fault(kind=kind, value=KINDS[kind].default, **GOOD[KINDS[kind].scope]), ACTORS) == ""


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": "rain"}, "no fault 'rain'; there are: kill, stop"),
        ({"kind": "kill"}, "kill needs an actor"),
        ({"kind": "kill", "actor": "z"}, "no actor 'z'; there are: a, b"),
        ({"kind": "slow", "actor": "a"}, "slow needs another actor as the receiver"),
        ({"kind": "slow", "actor": "a", "peer": "a"}, "slow needs another actor as the receiver"),
        ({"kind": "slow", "actor": "a", "peer": "b", "value": -1.0}, "slow takes 0 to 3600 seconds"),
        ({"kind": "cri"}, "cri needs a pod"),
        ({"kind": "leak", "actor": "a", "value": 1e6}, "leak takes 1 to 4096 MiB"),
        ({"kind": "clock", "actor": "a", "value": math.nan}, "a value of nan is not possible"),
        ({"kind": "clock", "actor": "a", "value": 1e12}, "a value of 1e+12 is not possible"),
    ],
)
def test_impossible_fault_is_refused_with_the_reason(fields: dict[str, Any], problem: str) -> None:
    assert wrong(Fault(**fields), ACTORS).startswith(problem)
