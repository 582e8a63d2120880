"""Takes probe results from the newest status, for containers that were started before this agent. Pure.

Since KEP-4781 a restarted kubelet changes neither `started` nor `ready` of a running container before a new probe
result. Source: isContainerStarted and setReadyStateOnKubeletRestart of pkg/kubelet/prober. It knows the API server's
status only. Ours is newer when its last write did not reach the server.

With the feature gate ChangeContainerStatusOnKubeletRestart nothing is inherited: containers are probed first.
"""

from __future__ import annotations

import contextlib
import datetime

from actors.pod_workers.model.view import PodView
from proto.pods.probe import Inherited
from proto.v1 import PodStatus


def newest(published: PodStatus | None, api: PodStatus) -> PodStatus:
    """Our last published status, unless the API server's became ready or unready after that.

    Then another kubelet has served the node meanwhile, or the node lifecycle controller has set Ready to False.
    """
    if published is None or _readiness_since(api) > _readiness_since(published):
        return api
    return published


def _readiness_since(status: PodStatus) -> float:
    """Unix seconds of the last change of Ready or ContainersReady. The controller changes Ready only; 0: not known."""
    conditions = (one for one in status.conditions if one.type in ("Ready", "ContainersReady"))
    return max((_seconds(one.last_transition_time) for one in conditions), default=0.0)


def _seconds(time: str | None) -> float:
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.datetime.fromisoformat(time or "").timestamp()
    return 0.0


def inherited_results(status: PodStatus, view: PodView) -> dict[str, tuple[Inherited, ...]]:
    """Container ID to the probes that count as succeeded, for containers that still run.

    `ready` counts only while the pod is Ready. The node lifecycle controller sets that condition to False when the node
    was unreachable for long; then each container is probed first.
    """
    pod_is_ready = any(one.type == "Ready" and one.status == "True" for one in status.conditions)
    found: dict[str, tuple[Inherited, ...]] = {}
    for one in (*status.init_container_statuses, *status.container_statuses):
        identity = (one.container_id or "").partition("://")[2]
        instance = view.container_by_id(identity)
        if one.state.running is None or not one.started or instance is None or instance.state != "running":
            continue
        found[identity] = ("startup", "readiness") if one.ready and pod_is_ready else ("startup",)
    return found
