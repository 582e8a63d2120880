"""What a pod needs done next, given what is wanted and what the runtime shows. Pure.

The decisions of the kubelet's computePodActions (pkg/kubelet/kuberuntime/kuberuntime_manager.go and
kuberuntime_container.go): whether the sandbox must be new, which init container is next, which containers to start,
which to kill and why. Does not cover back-off (back_off.py), admission (entrance.py) or how it is done
(operations.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from actors._host.hashing import container_hash
from actors.pod_workers.view import ContainerView, PodView
from proto.v1 import Container, Pod

ProbeLookup = Callable[[str, Literal["liveness", "readiness", "startup"]], str | None]
"""(container ID, probe) to `success`, `failure`, `unknown` or None when there is no result."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One running container to end."""

    container: ContainerView
    reason: Literal["LivenessProbe", "StartupProbe", "Unknown", "Changed", "PodKilled"]
    message: str


@dataclass(frozen=True, slots=True)
class Actions:
    """What to do, in this order: kill the pod or `kill`, create the sandbox, start `init`, start `start`."""

    kill_pod: bool = False
    """End every container and the sandbox first. Without `create_sandbox` the pod has nothing left to run."""
    create_sandbox: bool = False
    attempt: int = 0
    """Of the sandbox to create."""
    sandbox_id: str = ""
    """The sandbox containers start in, when it stays."""
    init: tuple[Container, ...] = ()
    """Init containers to start now, restartable ones included, in order."""
    start: tuple[Container, ...] = ()
    kill: tuple[Kill, ...] = field(default=())


def restarts_on_failure(pod: Pod) -> bool:
    """Whether any exit of this pod's containers may be followed by a restart."""
    return pod.spec.restart_policy != "Never"


def is_sidecar(container: Container) -> bool:
    """An init container that runs along: restartPolicy Always (KEP-753)."""
    return container.restart_policy == "Always"


def sandbox_change(pod: Pod, view: PodView) -> tuple[bool, int, str]:
    """(a new sandbox is needed, its attempt, ID of the present one)."""
    if not view.sandboxes:
        return True, 0, ""
    newest = view.sandboxes[0]
    ready = [sandbox for sandbox in view.sandboxes if sandbox.state == "ready"]
    if len(ready) > 1 or newest.state != "ready":
        return True, newest.attempt + 1, newest.id
    if not pod.spec.host_network and not newest.ips:
        return True, newest.attempt + 1, newest.id
    return False, newest.attempt, newest.id


def should_restart(container: Container, pod: Pod, found: ContainerView | None) -> bool:
    """Whether a container that is not running is to start: never created, or its policy wants it again."""
    if found is None or found.state in ("unknown", "created"):
        return True
    if found.state == "running":
        return False
    match container.restart_policy or pod.spec.restart_policy:
        case "Never":
            return False
        case "OnFailure":
            return found.exit_code != 0
        case _:
            return True


def compute_actions(pod: Pod, view: PodView, probes: ProbeLookup) -> Actions:
    """The next actions for a pod in its sync stage."""
    create, attempt, sandbox_id = sandbox_change(pod, view)
    if create:
        return _with_new_sandbox(pod, view, attempt)
    initialized, init, init_kills, init_failed = _init_actions(pod, view, sandbox_id, probes)
    if init_failed:
        return Actions(kill_pod=True, sandbox_id=sandbox_id)
    if not initialized:
        return Actions(sandbox_id=sandbox_id, init=init, kill=init_kills)
    start: list[Container] = []
    kills: list[Kill] = list(init_kills)
    kept = 0
    for container in pod.spec.containers:
        found = view.container(container.name)
        if found is None or found.state != "running":
            if should_restart(container, pod, found):
                start.append(container)
                if found is not None and found.state == "unknown":
                    kills.append(Kill(found, "Unknown", "Container is in unknown state, try killing it before restart"))
            continue
        kill, again = _kill_of_running(container, pod, found, probes)
        if kill is None:
            kept += 1
            continue
        kills.append(kill)
        if again:
            start.append(container)
    if kept == 0 and not start:
        return Actions(kill_pod=True, sandbox_id=sandbox_id)
    return Actions(sandbox_id=sandbox_id, init=init, start=tuple(start), kill=tuple(kills))


def _with_new_sandbox(pod: Pod, view: PodView, attempt: int) -> Actions:
    """A new sandbox means that everything starts anew, unless the policy leaves nothing to start."""
    kill = bool(view.sandboxes)
    if not restarts_on_failure(pod) and attempt != 0 and view.containers:
        return Actions(kill_pod=True)
    start = tuple(
        container
        for container in pod.spec.containers
        if not (pod.spec.restart_policy == "OnFailure" and _succeeded(view.container(container.name)))
    )
    if not start and _has_created_main(pod, view):
        return Actions(kill_pod=True)
    if pod.spec.init_containers:
        first = pod.spec.init_containers[:1]
        return Actions(kill_pod=kill, create_sandbox=True, attempt=attempt, init=first)
    return Actions(kill_pod=kill, create_sandbox=True, attempt=attempt, start=start)


def _succeeded(found: ContainerView | None) -> bool:
    return found is not None and found.state == "exited" and found.exit_code == 0


def _has_created_main(pod: Pod, view: PodView, sandbox_id: str | None = None) -> bool:
    names = {container.name for container in pod.spec.containers}
    return any(
        container.name in names and (sandbox_id is None or container.sandbox_id == sandbox_id)
        for container in view.containers
    )


def _kill_of_running(
    container: Container, pod: Pod, found: ContainerView, probes: ProbeLookup
) -> tuple[Kill | None, bool]:
    """(why a running container must end, whether it starts again)."""
    again = (container.restart_policy or pod.spec.restart_policy) != "Never"
    if found.hash and found.hash != container_hash(container.name, container.image or ""):
        return Kill(found, "Changed", f"Container {container.name} definition changed, will be restarted"), True
    suffix = ", will be restarted" if again else ""
    if probes(found.id, "liveness") == "failure":
        return Kill(found, "LivenessProbe", f"Container {container.name} failed liveness probe{suffix}"), again
    if probes(found.id, "startup") == "failure":
        return Kill(found, "StartupProbe", f"Container {container.name} failed startup probe{suffix}"), again
    return None, False


def _init_actions(
    pod: Pod, view: PodView, sandbox_id: str, probes: ProbeLookup
) -> tuple[bool, tuple[Container, ...], tuple[Kill, ...], bool]:
    """(all gates passed, init containers to start, to kill, a failed one ends the pod).

    Regular ones run once each, in order; a sidecar lets the next one start once it has started. After the first main
    container exists in this sandbox only sidecars are looked after.
    """
    past_init = _has_created_main(pod, view, sandbox_id)
    starts: list[Container] = []
    kills: list[Kill] = []
    for container in pod.spec.init_containers:
        found = view.in_sandbox(container.name, sandbox_id)
        if is_sidecar(container):
            if found is None or found.state != "running":
                starts.append(container)
                if past_init:
                    continue
                return False, tuple(starts), tuple(kills), False
            kill, _ = _kill_of_running(container, pod, found, probes)
            if kill is not None:
                kills.append(kill)
                starts.append(container)
            elif not past_init and container.startup_probe is not None and probes(found.id, "startup") != "success":
                return False, tuple(starts), tuple(kills), False
            continue
        if past_init or _succeeded(found):
            continue
        if found is not None and found.state == "running":
            return False, tuple(starts), tuple(kills), False
        if found is not None and found.state == "exited" and not restarts_on_failure(pod):
            return False, (), (), True
        starts.append(container)
        return False, tuple(starts), tuple(kills), False
    return True, tuple(starts), tuple(kills), False


def grace_period_s(pod: Pod, override: int | None = None) -> int:
    """Seconds between SIGTERM and SIGKILL. An override (eviction, a delete's own) goes before the spec's."""
    if override is not None:
        return override
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    given = pod.spec.termination_grace_period_seconds
    return 30 if given is None else given
