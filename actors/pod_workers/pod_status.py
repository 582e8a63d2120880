"""A pod's status from its spec, what the runtime shows and what probes found. Pure.

The kubelet's generateAPIPodStatus (pkg/kubelet/kubelet_pods.go, pkg/kubelet/status/generate.go): phase and conditions.
Container statuses are in container_status.py. Transition times are filled in by the status actor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from actors.pod_workers.view import ContainerView, PodView
from proto.v1 import Pod, PodStatus

ProbeResults = Callable[[str, str], str | None]
"""(container ID, `startup` or `readiness`) to `success`, `failure`, `unknown`; None: no result yet."""


def _no_results(container_id: str, probe: str) -> str | None:  # noqa: ARG001 - ProbeResults' signature
    return None


def _no_message(container: ContainerView) -> str:  # noqa: ARG001 - the signature of Inputs.termination_message
    return ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a status depends on besides the pod and the view of it."""

    probe_result: ProbeResults = _no_results
    waiting: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Container name to (reason, message) of why it could not be started last (the kubelet's reasonCache)."""
    old: PodStatus | None = None
    """The last published status; what the runtime has forgotten since is taken from it."""
    now: str = ""
    """RFC 3339, becomes startTime where there is none."""
    host_ips: tuple[str, ...] = ()
    terminal: bool = False
    """The pod has ended for good: nothing of it is restarted whatever its policy."""
    reason: str = ""
    """Why the node ended the pod (Evicted, DeadlineExceeded); such a pod is Failed."""
    message: str = ""
    runtime_name: str = "containerd"
    """Scheme of container IDs."""
    termination_message: Callable[[ContainerView], str] = _no_message
    """The message an exited container left; the caller reads and keeps it."""


def compute_status(pod: Pod, view: PodView, inputs: Inputs) -> PodStatus:
    """The status to publish. Condition times are unset."""
    raise NotImplementedError
