"""Whether a container that ended starts again: its own rules and policy, then its pod's. Pure.

Sources: KEP-753 (sidecars), KEP-5307 (policy and rules of one container), KEP-5532 (RestartAllContainers);
ContainerShouldRestart of pkg/api/v1/pod. Both gates are on by default in Kubernetes 1.36.
"""

from __future__ import annotations

from proto.v1 import Container, ContainerRestartRule, Pod

RESTART = "Restart"
RESTART_ALL = "RestartAllContainers"


def is_sidecar(container: Container) -> bool:
    """Of an init container: whether it runs along with the main ones (restartPolicy Always)."""
    return container.restart_policy == "Always"


def policy_of(container: Container, pod: Pod) -> str:
    """Always, OnFailure or Never: the container's own before its pod's."""
    return container.restart_policy or pod.spec.restart_policy or "Always"


def matching_rule(container: Container, exit_code: int) -> ContainerRestartRule | None:
    """The first rule the exit code matches. Rules hold only beside a policy of the container's own."""
    if not container.restart_policy:
        return None
    return next((rule for rule in container.restart_policy_rules if _matches(rule, exit_code)), None)


def _matches(rule: ContainerRestartRule, exit_code: int) -> bool:
    codes = rule.exit_codes
    if codes is None or codes.operator not in ("In", "NotIn"):
        return False
    return (exit_code in codes.values) == (codes.operator == "In")


def restarts_after(container: Container, pod: Pod, exit_code: int) -> bool:
    """Whether an end with that exit code is followed by a start."""
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
    """Whether any exit can have all of the pod's containers restarted."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(rule.action == RESTART_ALL for container in containers for rule in container.restart_policy_rules)
