"""Makes the conditions PodResizePending and PodResizeInProgress from the progress of a resize (KEP-1287). Pure.

Transition times are not set here. As in the kubelet, no progress is stored over a restart: it follows from the desired,
allocated and actuated resources.
"""

from __future__ import annotations

from dataclasses import dataclass

from proto.v1 import PodCondition

PENDING = "PodResizePending"
IN_PROGRESS = "PodResizeInProgress"
ERROR = "Error"


@dataclass(frozen=True, slots=True)
class Pending:
    """A resize that has not been granted."""

    reason: str = ""
    """Deferred or Infeasible; empty before it has been decided."""
    message: str = ""
    generation: int | None = None
    """The pod's generation when that was decided."""
    since: float = 0.0
    """Unix seconds of the first refusal; orders the waiting resizes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A resize that has been granted and is not done."""

    generation: int | None = None
    error: str = ""
    """Why the last attempt failed."""


def resize_conditions(pending: Pending | None, progress: Progress | None) -> tuple[PodCondition, ...]:
    """In the kubelet's order."""
    found = []
    if pending is not None and pending.reason:
        found.append(_condition(PENDING, pending.generation, pending.reason, pending.message))
    if progress is not None:
        found.append(_condition(IN_PROGRESS, progress.generation, ERROR if progress.error else "", progress.error))
    return tuple(found)


def _condition(kind: str, generation: int | None, reason: str, message: str) -> PodCondition:
    return PodCondition(
        type=kind, observed_generation=generation, status="True", reason=reason or None, message=message or None
    )
