"""Status updates of a claim while its volume is grown on the node, and afterwards. Pure.

Source: MarkNodeExpansionInProgress, MarkNodeExpansionFailedCondition, MarkNodeExpansionInfeasible and
MarkNodeExpansionFinishedWithRecovery of pkg/volume/util of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

import msgspec

FAILED = "NodeResizeError"
_OF_THE_NODE = frozenset({"NodeResizePending", "NodeResizeInProgress"})
_OF_RESIZING = frozenset({"FileSystemResizePending", "Resizing", "ControllerResizeError", FAILED})


class _Condition(msgspec.Struct):
    type: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    capacity: dict[str, str] | None = None
    conditions: list[_Condition] | None = None
    allocated_resource_statuses: dict[str, str] | None = None


class Claim(msgspec.Struct):
    """The fields of a claim that are read here."""

    metadata: dict[str, Any]
    status: _Status | None = None


def grown(claim: dict[str, Any], capacity: str) -> dict[str, Any] | None:
    """The claim with the new capacity and a finished resize; None when its status already says so."""
    before = claim.get("status") or {}
    status = dict(before)
    status["capacity"] = (before.get("capacity") or {}) | {"storage": capacity}
    _keep(status, "conditions", [one for one in before.get("conditions") or () if one.get("type") not in _OF_RESIZING])
    statuses = before.get("allocatedResourceStatuses") or {}
    _keep(status, "allocatedResourceStatuses", {name: one for name, one in statuses.items() if name != "storage"})
    return claim | {"status": status} if status != before else None


def expansion(claim: dict[str, Any], phase: str, message: str, now: str) -> dict[str, Any] | None:
    """The claim with the phase of SetClaimExpansion; None when there is nothing to change.

    Controllers without KEP-1790 keep no such status and would never remove it, so it is not written for them.
    """
    before = claim.get("status") or {}
    statuses = before.get("allocatedResourceStatuses") or {}
    if "storage" not in statuses:
        return None
    if phase != FAILED and statuses["storage"] not in _OF_THE_NODE:
        return None  # the claim has changed meanwhile, and its controllers are at work
    status = dict(before)
    if phase != FAILED:
        status["allocatedResourceStatuses"] = statuses | {"storage": phase}
    if message:
        conditions = before.get("conditions") or ()
        known: dict[str, Any] = next((one for one in conditions if one.get("type") == FAILED), {})
        if known.get("message") != message or known.get("status") != "True":
            new = {"type": FAILED, "status": "True", "lastTransitionTime": now, "message": message}
            status["conditions"] = [*(one for one in conditions if one.get("type") != FAILED), new]
    return claim | {"status": status} if status != before else None


def _keep(status: dict[str, Any], name: str, value: Any) -> None:
    if value:
        status[name] = value
    else:
        status.pop(name, None)
