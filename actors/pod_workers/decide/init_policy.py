"""Decides the next actions for a pod's init containers, sidecars included. Pure.

Source: computeInitContainerActions of pkg/kubelet/kuberuntime. Regular init containers run once each, in order. After a
sidecar has started, the next one starts, and the sidecar is kept running (KEP-753). The list is read from its end: the
last container that the runtime knows decides. All before it are done, even if the runtime has removed them.

When no main container is alive and one is to start again, it waits until a sidecar at the end of the list has started.
The kubelet runs init containers again that the runtime has removed. Here an ended main container of the same sandbox
proves that they are done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from actors._host.files.hashing import container_hash
from actors.pod_workers.decide.termination import Kill, KillReason, ProbeLookup
from actors.pod_workers.model.restart_policy import is_sidecar, policy_of, restarts_after, should_restart
from actors.pod_workers.model.view import KILLED, ContainerView, PodView
from proto.v1 import Container, ContainerStateTerminated, Pod

_OOM_KILLED = "OOMKilled"


@dataclass(frozen=True, slots=True)
class InitActions:
    """`initialized`: main containers may run. `failed`: an init container failed for good, and so does the pod."""

    initialized: bool
    start: tuple[Container, ...] = ()
    """In the spec's order."""
    kill: tuple[Kill, ...] = ()
    failed: bool = False


def has_created_main(pod: Pod, view: PodView, sandbox_id: str | None = None) -> bool:
    """A main container was created, in that sandbox or in any: the pod was initialized before."""
    names = {container.name for container in pod.spec.containers}
    return any(one.name in names and sandbox_id in (None, one.sandbox_id) for one in view.containers)


def definition_changed(container: Container, found: ContainerView) -> bool:
    """Return True when the spec's name or image has changed since the container was created."""
    return bool(found.hash) and found.hash != container_hash(container.name, container.image or "")


def completed_init_containers(pod: Pod, view: PodView) -> frozenset[str]:
    """Names of the init containers that the pod has gone on from, so that a late OOM kill does not count.

    A later container was created in the newest sandbox, or their own newest instance is in an older one. Without a
    sandbox, containers of all sandboxes count as in the newest.
    """
    names = [one.name for one in pod.spec.init_containers]
    newest = view.sandboxes[0].id if view.sandboxes else None
    if has_created_main(pod, view, newest):
        return frozenset(names)
    here = {one.name for one in view.containers if newest in (None, one.sandbox_id)}
    last = max((index for index, name in enumerate(names) if name in here), default=0)
    older = {one.name for one in view.containers if newest and one.sandbox_id not in ("", newest)}
    return frozenset(names[:last]) | (older - here)


def init_exit_code(container: Container, ended: ContainerView | ContainerStateTerminated, *, past: bool = False) -> int:
    """The exit code that counts for an ended init container: 137 instead of 0 after an OOM kill.

    A shell whose child was killed may exit with 0 after half of the work (isInitContainerFailed of
    pkg/kubelet/kuberuntime). A sidecar starts again in any case.

    `past`: its name is in `completed_init_containers`. Then the kill was noticed too late, or a former release went on.
    """
    if ended.exit_code == 0 and ended.reason == _OOM_KILLED and not past and not is_sidecar(container):
        return KILLED
    return ended.exit_code


def with_counted_exit_code(container: Container, found: ContainerView) -> ContainerView:
    """The init container's instance with the exit code that counts before main containers are created."""
    return replace(found, exit_code=init_exit_code(container, found))


def init_actions(pod: Pod, view: PodView, sandbox_id: str, probes: ProbeLookup) -> InitActions:
    """The next actions for the init containers in this sandbox. `start` may be empty while one runs."""
    containers = pod.spec.init_containers
    settled = not containers or has_created_main(pod, view, sandbox_id)
    initialized = settled and not _awaits_sidecar(pod, view, sandbox_id)
    start: list[int] = []
    kills: list[Kill] = []
    for index in reversed(range(len(containers))):
        container = containers[index]
        found = view.in_sandbox(container.name, sandbox_id)
        if found is None:
            if settled and is_sidecar(container):
                start.append(index)
            continue
        if settled and not is_sidecar(container):
            continue
        found = with_counted_exit_code(container, found)
        if _has_failed(container, pod, found):
            return InitActions(initialized=False, failed=True)
        kill = _kill(container, found, probes)
        if kill is not None:
            kills.append(kill)
        if kill is not None or _starts(container, found):
            start.append(index)
        if _is_past(container, found, probes):
            if index == len(containers) - 1:
                initialized = True
            elif not settled:
                start.append(index + 1)
        settled = True
    if not settled:
        start.append(0)
    return InitActions(initialized, tuple(containers[index] for index in sorted(set(start))), tuple(kills))


def _awaits_sidecar(pod: Pod, view: PodView, sandbox_id: str) -> bool:
    """True if no main container is alive, one is to start, and the last init container is a sidecar."""
    if not any(map(is_sidecar, pod.spec.init_containers[-1:])):
        return False
    mains = [(one, view.in_sandbox(one.name, sandbox_id)) for one in pod.spec.containers]
    if any(found is not None and found.state in ("created", "running") for _, found in mains):
        return False
    return any(should_restart(one, pod, found) for one, found in mains)


def _has_failed(container: Container, pod: Pod, found: ContainerView) -> bool:
    """Return True for a failure without a retry: no sidecar, policy or rule.

    A lost container has failed. It has no exit code, so its policy decides without rules.
    """
    if is_sidecar(container):
        return False
    if found.state == "unknown":
        return policy_of(container, pod) == "Never"
    return found.state == "exited" and found.exit_code != 0 and not restarts_after(container, pod, found.exit_code)


def _starts(container: Container, found: ContainerView) -> bool:
    if found.state == "exited":
        return is_sidecar(container) or found.exit_code != 0
    return found.state == "created"


def _is_past(container: Container, found: ContainerView, probes: ProbeLookup) -> bool:
    """Return True when the next container may start."""
    if not is_sidecar(container):
        return found.state == "exited" and found.exit_code == 0
    started = container.startup_probe is None or probes(found.id, "startup") == "success"
    return found.state == "running" and started


def _kill(container: Container, found: ContainerView, probes: ProbeLookup) -> Kill | None:
    if found.state == "unknown":
        return Kill(found, "Unknown", 'Init container is in "unknown" state, try killing it before restart')
    if found.state != "running" or not is_sidecar(container):
        return None
    why: tuple[KillReason, str] | None = None
    if container.startup_probe is not None and probes(found.id, "startup") != "success":
        if probes(found.id, "startup") == "failure":
            why = "StartupProbe", "failed startup probe"
    elif definition_changed(container, found):
        why = "Changed", "definition changed"
    elif container.liveness_probe is not None and probes(found.id, "liveness") == "failure":
        why = "LivenessProbe", "failed liveness probe"
    return None if why is None else Kill(found, why[0], f"Init container {container.name} {why[1]}")
