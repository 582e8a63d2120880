"""Decides from the runtime's view whether a container starts again. Pure.

`actors._host.restart` evaluates the spec's policy and rules. Source: ShouldAllContainersRestart of
pkg/kubelet/container.
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
    """Return True when a container that does not run must start, for the first time or again."""
    if found is None or found.state in ("unknown", "created"):
        return True
    return found.state == "exited" and restarts_after(container, pod, found.exit_code)


def restarts_on_failure(pod: Pod) -> bool:
    """Return True when the pod's policy restarts failed containers."""
    return pod.spec.restart_policy != "Never"


# All at once


def restart_sources(pod: Pod, view: PodView) -> tuple[ContainerView, ...]:
    """Containers of the present sandbox whose last exit matches a RestartAllContainers rule."""
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


def to_reset(pod: Pod, view: PodView, *, begun: bool = False) -> tuple[ContainerView, ...]:
    """Containers to remove before all start anew, in this order; empty when no rule matches.

    The containers whose exit matched come last: after a kill in between they still match. Ephemeral containers stay.
    `begun`: a reset is published as under way. It ends when all are removed, also if the matching exit is lost.
    """
    sources = restart_sources(pod, view)
    if not sources and not begun:
        return ()
    names = {container.name for container in (*pod.spec.init_containers, *pod.spec.containers)}
    others = (one for one in view.containers if one.name in names and one not in sources)
    return (*others, *sources)
