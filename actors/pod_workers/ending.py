"""Why and how a pod ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """A wish to end a pod.

    `deleted`: no source wants it, so nothing is to be left of it; otherwise it stays, as Succeeded or Failed.
    `grace_period_s`: overrides the pod's own. `reason`, `message`: of the pod's status, when the end is the node's
    doing (Evicted, DeadlineExceeded); such a pod is Failed.
    """

    deleted: bool = False
    grace_period_s: int | None = None
    reason: str = ""
    message: str = ""

    def merged(self, later: Ending) -> Ending:
        """Both wishes: deletion and the shorter grace period win, the first reason stands."""
        graces = [grace for grace in (self.grace_period_s, later.grace_period_s) if grace is not None]
        return Ending(
            deleted=self.deleted or later.deleted,
            grace_period_s=min(graces) if graces else None,
            reason=self.reason or later.reason,
            message=self.message or later.message,
        )
