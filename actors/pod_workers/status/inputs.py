"""The facts that a pod's status depends on, besides the pod and the runtime's view of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from actors.pod_workers.model.allocation import NOTHING, PodResourceInfo
from actors.pod_workers.model.view import ContainerView
from proto.v1 import PodCondition, PodStatus
from proto.v1.status import ResourceStatus

ProbeResults = Callable[[str, str], str | None]
"""(container ID, `startup` or `readiness`) to `success`, `failure`, `unknown`; None: no result yet."""


def _no_results(container_id: str, probe: str) -> str | None:  # noqa: ARG001 - ProbeResults' signature
    return None


def _no_message(container: ContainerView) -> str:  # noqa: ARG001 - the signature of StatusInputs.termination_message
    return ""


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """Inputs of `compute_status`, container statuses and conditions."""

    probe_result: ProbeResults = _no_results
    waiting: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Container name to (reason, message) of its last failed start (the kubelet's reasonCache)."""
    volumes: str = ""
    """Why the pod's volumes are not mounted."""
    old: PodStatus | None = None
    """The last published status, for facts that the runtime has lost since."""
    now: str = ""
    """RFC 3339; becomes startTime if there is none."""
    host_ips: tuple[str, ...] = ()
    host_ips_told: bool = True
    """False: they may not be the Node's, and published ones stay."""
    keeps_ips: bool = False
    """A pod on the host's network keeps `old`'s addresses: its sandboxes and containers are those of that status."""
    node_ip: str = ""
    """--node-ip, whose family is the first of a pod's addresses."""
    terminal: bool = False
    """The pod ends for good: no container restarts under any policy."""
    over: bool = False
    """No process of the pod runs any more."""
    reason: str = ""
    """Why the node ends the pod (Evicted, Preempting, DeadlineExceeded)."""
    message: str = ""
    restarting_all: bool = False
    """A rule restarts all containers (KEP-5532); set by `compute_status`."""
    runtime_name: str = "containerd"
    """Scheme of container IDs."""
    resize: tuple[PodCondition, ...] = ()
    """Conditions of a resize, see `resources.resize_conditions`."""
    actuated: PodResourceInfo = NOTHING
    """The resources that were set last."""
    image_digests: bool = False
    """The feature gate ImageVolumeWithDigest: the images of image volumes are in the status."""
    health: Mapping[str, tuple[ResourceStatus, ...]] | None = None
    """The health of devices by container; None while it is not known."""
    termination_message: Callable[[ContainerView], str] = _no_message
    """The termination message of an exited container; the caller reads and caches it."""
