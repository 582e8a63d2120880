"""The verdicts on event reasons hold: what is said to be sent is in the sources, and nothing else of the kubelet's."""

from __future__ import annotations

import ast
from pathlib import Path

from actors.events.policy import OWN_REASONS
from tests.events.reasons import REASONS

ACTORS = Path(__file__).parents[3] / "actors"
MADE = {"ResizeDeferred": ("Resize", "Deferred"), "ResizeInfeasible": ("Resize", "Infeasible")}
"""Reasons that are put together, with their parts."""


def strings(but: str = "") -> set[str]:
    """Every string in the sources of the actors, without the one directory `but`."""
    paths = (path for path in ACTORS.rglob("*.py") if path.relative_to(ACTORS).parts[0] != but)
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    return {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_reasons_are_in_the_sources_as_the_verdicts_say() -> None:
    present = strings()
    wrong = {
        reason: verdict or "said to be sent"
        for reason, verdict in REASONS.items()
        if all(part in present for part in MADE.get(reason, (reason,))) is bool(verdict)
    }
    assert wrong == {}


def test_own_reasons_are_sent_and_not_the_kubelets() -> None:
    assert strings(but="events") >= OWN_REASONS
    assert not OWN_REASONS & REASONS.keys()
