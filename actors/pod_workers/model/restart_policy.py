"""Whether a container starts again, by what the runtime shows of it. Pure.

What its spec says to that is `actors._host.restart`'s. Source: ShouldAllContainersRestart of pkg/kubelet/container.
"""

from __future__ import annotations

from actors._host.restart import RESTART_ALL, is_sidecar, matching_rule, may_restart_all, policy_of, restarts_after
from actors.pod_workers.model.view import ContainerView, PodView
from proto.v1 import Container, Pod

__all__ = [
    "is_sidecar",
    "matching_rule",
    "may_restart_all",
    "policy_of",
    "restart_sources",
    "restarts_after",
    "restarts_on_failure",
    "should_restart",
    "to_reset",
]


def should_restart(container: Container, pod: Pod, found: ContainerView | None) -> bool:
    """Whether a container that is not running is to start: never created, or wanted again after its end."""
    if found is None or found.state in ("unknown", "created"):
        return True
    return found.state == "exited" and restarts_after(container, pod, found.exit_code)


def restarts_on_failure(pod: Pod) -> bool:
    """Whether the pod's policy lets any of its containers follow a failed one."""
    return pod.spec.restart_policy != "Never"


# All at once


def restart_sources(pod: Pod, view: PodView) -> tuple[ContainerView, ...]:
    """Containers of the present sandbox whose newest end wants all of the pod's containers restarted."""
    if not view.sandboxes or not may_restart_all(pod):
        return ()
    found = []
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        newest = view.in_sandbox(container.name, view.sandboxes[0].id)
        if newest is not None and newest.state == "exited":
            rule = matching_rule(container, newest.exit_code)
            if rule is not None and rule.action == RESTART_ALL:
                found.append(newest)
    return tuple(found)


def to_reset(pod: Pod, view: PodView) -> tuple[ContainerView, ...]:
    """Every life that has to go before all containers start anew, what asked for it last: should we die in between,
    it still asks. Empty when nothing does. Ephemeral containers stay."""
    sources = restart_sources(pod, view)
    if not sources:
        return ()
    names = {container.name for container in (*pod.spec.init_containers, *pod.spec.containers)}
    others = (one for one in view.containers if one.name in names and one not in sources)
    return (*others, *sources)
