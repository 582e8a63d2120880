"""Decides the grace period and the order in which a pod's containers end. Pure.

Sources: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination, KEP-753 for the order of
sidecars, KEP-2238 for grace periods of probes; setTerminationGracePeriod and terminationOrdering of
pkg/kubelet/kuberuntime. `steps.killing` carries it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from actors.pod_workers.model import reasons
from actors.pod_workers.model.restart_policy import is_sidecar
from actors.pod_workers.model.termination_request import TerminationRequest
from actors.pod_workers.model.view import ContainerView
from proto.v1 import Container, Pod

MINIMUM_GRACE_S = 2
"""minimumGracePeriodInSeconds of pkg/kubelet/kuberuntime: each stop gives at least this, even after a long hook."""
DEFAULT_GRACE_S = 30
MINIMUM_KILL_WAIT_S = 10

KillReason = Literal["LivenessProbe", "StartupProbe", "Unknown", "Changed", "FailedPostStartHook", "Resize"]

ProbeLookup = Callable[[str, Literal["liveness", "readiness", "startup"]], str | None]
"""(container ID, probe) to `success`, `failure`, `unknown` or None when there is no result."""


RESTARTED = ", will be restarted"
"""End of the message of a kill after which the container starts again."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One running container to end."""

    container: ContainerView
    reason: KillReason
    message: str
    """Of its Killing event."""


def grace_period_s(pod: Pod, override: int | None = None) -> int:
    """Seconds between SIGTERM and SIGKILL. An override wins, then the deletion's, then the spec's."""
    if override is not None:
        return override
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    given = pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE_S if given is None else given


def end_grace_s(pod: Pod, override: int | None = None) -> int:
    """The same for the end of the pod as a whole: at least a second, in which a preStop hook runs.

    Source: calculateEffectiveGracePeriod of pkg/kubelet/pod_workers.go.
    """
    return max(1, grace_period_s(pod, override))


def grace_of_kill_s(pod: Pod, container: Container | None, reason: KillReason) -> int:
    """Grace period of one container's end in seconds: the deletion's, else the failed probe's, else the pod's."""
    probe = None
    if container is not None and pod.metadata.deletion_grace_period_seconds is None:
        by_reason = {"LivenessProbe": container.liveness_probe, "StartupProbe": container.startup_probe}
        probe = by_reason.get(reason)
    own = probe.termination_grace_period_seconds if probe is not None else None
    return grace_period_s(pod, own)


def kill_wait_s(pod: Pod, request: TerminationRequest) -> float | None:
    """Seconds in which a pod that the node ends for its own sake must have ended; None for any other end.

    Source: killPodNow of pkg/kubelet/pod_workers.go, for eviction, preemption and shutdown.
    """
    if request.reason not in reasons.DISRUPTIONS:
        return None
    grace_s = grace_period_s(pod, request.grace_period_s)
    return max(MINIMUM_KILL_WAIT_S, grace_s + grace_s // 2)


def stop_timeout_s(left_s: float) -> int:
    """StopContainer's timeout in seconds when `left_s` of the grace period is left."""
    return max(MINIMUM_GRACE_S, math.ceil(left_s))


def waits_for(pod: Pod, running: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Name of a running sidecar to the containers that must have ended before it is stopped.

    These are the main containers and the sidecar after it. Containers that are not keys are stopped at once.
    """
    main = tuple(container.name for container in pod.spec.containers if container.name in running)
    order: dict[str, tuple[str, ...]] = {}
    after: tuple[str, ...] = ()
    for container in reversed(pod.spec.init_containers):
        if is_sidecar(container) and container.name in running:
            order[container.name] = (*main, *after)
            after = (container.name,)
    return order


def find_container(pod: Pod, name: str) -> Container | None:
    """The container of that name in any list of the pod's spec."""
    spec = pod.spec
    everything = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    return next((container for container in everything if container.name == name), None)
