"""Takes probe results from the API server's status, for containers that another kubelet started. Pure.

Since KEP-4781 a restarted kubelet changes neither `started` nor `ready` of a running container before a new probe
result. Source: isContainerStarted and setReadyStateOnKubeletRestart of pkg/kubelet/prober.
"""

from __future__ import annotations

from actors.pod_workers.model.view import PodView
from proto.pods.probe import Inherited
from proto.v1 import PodStatus


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
