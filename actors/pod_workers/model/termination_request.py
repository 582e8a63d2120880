"""TerminationRequest: why a pod must end, and within which grace period. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from proto.v1 import Pod

TERMINAL_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class TerminationRequest:
    """A request to end a pod. Without `reason` the pod ended by itself, or a source asks for its end.

    With `reason` the node ends the pod. Such a pod becomes Failed. If its containers succeeded before its deadline, it
    becomes Succeeded, without reason and message.
    """

    deleted: bool = False
    """No source wants the pod: remove all of it. Else it stays as Succeeded or Failed."""
    grace_period_s: int | None = None
    """Overrides the pod's own."""
    reason: str = ""
    """Of the pod's status: Evicted, DeadlineExceeded, Preempting, or why admission rejected it."""
    message: str = ""

    def merged(self, later: TerminationRequest) -> TerminationRequest:
        """Both requests: deletion and the shorter grace period win, the first reason stands."""
        graces = [grace for grace in (self.grace_period_s, later.grace_period_s) if grace is not None]
        return TerminationRequest(
            deleted=self.deleted or later.deleted,
            grace_period_s=min(graces) if graces else None,
            reason=self.reason or later.reason,
            message=self.message or later.message,
        )


def requested_termination(pod: Pod) -> TerminationRequest | None:
    """The request that the pod's object makes; None while the pod is to run.

    A deletionTimestamp ends the pod, and keeps it as Succeeded or Failed until the object is gone. So does a phase
    Succeeded or Failed, set by us before a restart or by a controller. The grace period is at least a second, as in
    the kubelet (calculateEffectiveGracePeriod in pod_workers.go).
    """
    if pod.metadata.deletion_timestamp is None:
        return TerminationRequest() if pod.status.phase in TERMINAL_PHASES else None
    grace_s = pod.metadata.deletion_grace_period_seconds
    return TerminationRequest(grace_period_s=None if grace_s is None else max(1, grace_s))
