"""A table of claim statuses during the growth of a volume."""

from __future__ import annotations

from typing import Any

import pytest

from actors.objects import claims

NOW = "2026-01-01T00:00:00Z"
BOUND = {"type": "Bound", "status": "True"}
PENDING = {"type": "FileSystemResizePending", "status": "True"}


def status(state: str = "", *conditions: dict[str, Any], capacity: str = "1Gi") -> dict[str, Any]:
    """Of a claim whose storage is in that state of growth."""
    found: dict[str, Any] = {"phase": "Bound", "capacity": {"storage": capacity}}
    if conditions:
        found["conditions"] = list(conditions)
    return found | ({"allocatedResourceStatuses": {"storage": state}} if state else {})


def failed(message: str = "no") -> dict[str, Any]:
    return {"type": "NodeResizeError", "status": "True", "lastTransitionTime": NOW, "message": message}


@pytest.mark.parametrize(
    ("before", "phase", "message", "after"),
    [
        (status("NodeResizePending", PENDING), "NodeResizeInProgress", "", status("NodeResizeInProgress", PENDING)),
        (status("NodeResizeInProgress"), "NodeResizeInProgress", "", None),
        (status("NodeResizeInProgress"), "NodeResizeError", "no", status("NodeResizeInProgress", failed())),
        (status("NodeResizeInProgress", failed()), "NodeResizeError", "no", None),
        (
            status("NodeResizeInProgress", PENDING, failed()),
            "NodeResizeError",
            "still no",
            status("NodeResizeInProgress", PENDING, failed("still no")),
        ),
        (
            status("NodeResizeInProgress", PENDING),
            "NodeResizeInfeasible",
            "no",
            status("NodeResizeInfeasible", PENDING, failed()),
        ),
        (status("ControllerResizeInProgress"), "NodeResizeInProgress", "", None),
        (status("NodeResizeInfeasible"), "NodeResizeInProgress", "", None),
        (status("ControllerResizeInProgress"), "NodeResizeInfeasible", "no", None),
        (status(), "NodeResizeInProgress", "", None),
        (status(), "NodeResizeInfeasible", "no", None),
    ],
)
def test_expansion_phases_in_the_claims_status(
    before: dict[str, Any], phase: str, message: str, after: dict[str, Any] | None
) -> None:
    claim = {"kind": "PersistentVolumeClaim", "status": before}
    found = claims.expansion(claim, phase, message, NOW)
    assert found == (None if after is None else claim | {"status": after})


def test_finished_growth_clears_the_claims_status() -> None:
    claim = {"status": status("NodeResizeInProgress", BOUND, PENDING, failed())}
    grown = claims.grown(claim, "2Gi")
    assert grown == {"status": status("", BOUND, capacity="2Gi")}
    assert claims.grown(grown, "2Gi") is None
