"""Decides whether a container restarts: by its own rules and policy, then by its pod's policy. Pure.

Sources: KEP-753 (sidecars), KEP-5307 (policy and rules of one container), KEP-5532 (RestartAllContainers);
ContainerShouldRestart of pkg/api/v1/pod. Both gates are on by default in Kubernetes 1.36.
"""

from __future__ import annotations

from proto.v1 import Container, ContainerRestartRule, Pod

RESTART = "Restart"
RESTART_ALL = "RestartAllContainers"


def is_sidecar(container: Container) -> bool:
    """Return True for an init container that runs beside the main ones (restartPolicy Always)."""
    return container.restart_policy == "Always"


def policy_of(container: Container, pod: Pod) -> str:
    """Return Always, OnFailure or Never: the container's own policy, else its pod's."""
    return container.restart_policy or pod.spec.restart_policy or "Always"


def matching_rule(container: Container, exit_code: int) -> ContainerRestartRule | None:
    """Return the first rule that matches the exit code. Rules apply only with a policy of the container's own."""
    if not container.restart_policy:
        return None
    return next((rule for rule in container.restart_policy_rules if _matches(rule, exit_code)), None)


def _matches(rule: ContainerRestartRule, exit_code: int) -> bool:
    codes = rule.exit_codes
    if codes is None or codes.operator not in ("In", "NotIn"):
        return False
    return (exit_code in codes.values) == (codes.operator == "In")


def restarts_after(container: Container, pod: Pod, exit_code: int) -> bool:
    """Return True when the container restarts after this exit code."""
    rule = matching_rule(container, exit_code)
    if rule is not None and rule.action in (RESTART, RESTART_ALL):
        return True
    match policy_of(container, pod):
        case "Never":
            return False
        case "OnFailure":
            return exit_code != 0
        case _:
            return True


def may_restart_all(pod: Pod) -> bool:
    """Return True when some rule restarts all containers of the pod."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(rule.action == RESTART_ALL for container in containers for rule in container.restart_policy_rules)
