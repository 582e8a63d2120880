"""Why and how a pod ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from actors.pod_workers.status.phase import TERMINAL
from proto.v1 import Pod


@dataclass(frozen=True, slots=True)
class TerminationRequest:
    """A wish to end a pod.

    `deleted`: no source wants it, so nothing is to be left of it; otherwise it stays, as Succeeded or Failed.
    `grace_period_s`: overrides the pod's own. `reason`, `message`: of the pod's status, when the end is the node's
    doing (Evicted, DeadlineExceeded); such a pod is Failed, or Succeeded without them when its containers succeeded
    and it was not past its deadline.
    """

    deleted: bool = False
    grace_period_s: int | None = None
    reason: str = ""
    message: str = ""

    def merged(self, later: TerminationRequest) -> TerminationRequest:
        """Both wishes: deletion and the shorter grace period win, the first reason stands."""
        graces = [grace for grace in (self.grace_period_s, later.grace_period_s) if grace is not None]
        return TerminationRequest(
            deleted=self.deleted or later.deleted,
            grace_period_s=min(graces) if graces else None,
            reason=self.reason or later.reason,
            message=self.message or later.message,
        )


def requested_termination(pod: Pod) -> TerminationRequest | None:
    """What the API server asks of the pod by its deletionTimestamp: to end it, and keep it as Succeeded or Failed until
    the object itself goes. The same goes for a pod that is Succeeded or Failed there already, by our own word before a
    restart or by a controller's. None otherwise.

    The grace period is at least a second, as the kubelet has it (calculateEffectiveGracePeriod in pod_workers.go).
    """
    if pod.metadata.deletion_timestamp is None:
        return TerminationRequest() if pod.status.phase in TERMINAL else None
    grace_s = pod.metadata.deletion_grace_period_seconds
    return TerminationRequest(grace_period_s=None if grace_s is None else max(1, grace_s))
