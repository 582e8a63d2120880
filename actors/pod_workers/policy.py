"""Decides the next actions for a pod from its spec and the runtime's view of it. Pure.

Source: the kubelet's computePodActions (pkg/kubelet/kuberuntime/kuberuntime_manager.go). The actions are a new sandbox,
containers to start, and containers to kill with the reason. `decide.init_policy` covers init containers,
`model.restart_policy` restarts after an exit. `steps` carries the actions out and applies back-offs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from actors.pod_workers.decide.init_policy import definition_changed, has_created_main, init_actions
from actors.pod_workers.decide.resize import ResizePlan
from actors.pod_workers.decide.termination import RESTARTED, Kill, KillReason, ProbeLookup
from actors.pod_workers.model.restart_policy import policy_of, restarts_on_failure, should_restart, to_reset
from actors.pod_workers.model.view import ContainerView, PodView
from proto.v1 import Container, Pod


@dataclass(frozen=True, slots=True)
class Actions:
    """Done in this order: kill the pod, or `kill`; create the sandbox; start `ephemeral`, `init`, `start`.

    With `reset` nothing else is done: the next actions are computed from the rest.
    """

    kill_pod: bool = False
    """End every container and the sandbox first. Without `create_sandbox` the pod has nothing more to run."""
    create_sandbox: bool = False
    attempt: int = 0
    """Of the sandbox to create."""
    sandbox_id: str = ""
    """The present sandbox, if it stays."""
    init: tuple[Container, ...] = ()
    """Init containers to start now, restartable ones included, in order."""
    start: tuple[Container, ...] = ()
    kill: tuple[Kill, ...] = field(default=())
    ephemeral: tuple[Container, ...] = ()
    """Each starts once, even before the pod is initialized."""
    reset: tuple[ContainerView, ...] = ()
    """Containers to end and remove, in this order, before all start anew. A lost sandbox is replaced afterwards."""

    def __bool__(self) -> bool:
        return bool(
            self.kill_pod or self.create_sandbox or self.init or self.start or self.kill or self.ephemeral or self.reset
        )


def sandbox_change(pod: Pod, view: PodView, *, misplaced: bool = False) -> tuple[bool, int, str]:
    """(a new sandbox is needed, its attempt, ID of the present one). `misplaced`: see `compute_actions`."""
    if not view.sandboxes:
        return True, 0, ""
    newest = view.sandboxes[0]
    ready = [sandbox for sandbox in view.sandboxes if sandbox.state == "ready"]
    if len(ready) > 1 or newest.state != "ready" or misplaced:
        return True, newest.attempt + 1, newest.id
    if not pod.spec.host_network and not newest.ips:
        return True, newest.attempt + 1, newest.id
    # A manifest with a fixed UID may change its network. Only a complete record tells the sandbox's own.
    if newest.complete and newest.host_network != bool(pod.spec.host_network):
        return True, newest.attempt + 1, newest.id
    return False, newest.attempt, newest.id


def compute_actions(
    pod: Pod, view: PodView, probes: ProbeLookup, *, resetting: bool = False, misplaced: bool = False
) -> Actions:
    """The next actions for a pod in its sync stage.

    `resetting`: its status has AllContainersRestarting. `misplaced`: it runs outside its cgroup, and has to move there.
    """
    create, attempt, sandbox_id = sandbox_change(pod, view, misplaced=misplaced)
    reset = to_reset(pod, view, begun=resetting)
    if reset:
        return Actions(sandbox_id=sandbox_id, reset=reset)
    if create:
        return _with_new_sandbox(pod, view, attempt)
    ephemeral = tuple(container for container in pod.spec.ephemeral_containers if not _had_life(container, view))
    init = init_actions(pod, view, sandbox_id, probes)
    if init.failed:
        return Actions(kill_pod=True, sandbox_id=sandbox_id)
    if not init.initialized:
        return Actions(sandbox_id=sandbox_id, ephemeral=ephemeral, init=init.start, kill=init.kill)
    start: list[Container] = []
    kills: list[Kill] = list(init.kill)
    kept = 0
    for container in pod.spec.containers:
        found = view.container(container.name)
        if found is None or found.state != "running":
            if should_restart(container, pod, found):
                start.append(container)
                if found is not None and found.state == "unknown":
                    message = 'Container is in "unknown" state, try killing it before restart'
                    kills.append(Kill(found, "Unknown", message))
            continue
        kill, again = _kill_of_running(container, pod, found, probes)
        if kill is None:
            kept += 1
            continue
        kills.append(kill)
        if again:
            start.append(container)
    if kept == 0 and not start:
        return Actions(kill_pod=True, sandbox_id=sandbox_id)  # sidecars do not keep a pod alive
    return Actions(sandbox_id=sandbox_id, ephemeral=ephemeral, init=init.start, start=tuple(start), kill=tuple(kills))


def with_restarts(actions: Actions, planned: ResizePlan, pod: Pod) -> Actions:
    """The pod's actions, plus a kill and a start of each container that a resize restarts."""
    init = {one.name for one in pod.spec.init_containers}
    new = planned.restarts
    kills = (Kill(found, "Resize", f"Container {one.name} resize requires restart") for one, found in new)
    return replace(
        actions,
        kill=(*actions.kill, *kills),
        init=(*actions.init, *(one for one, _ in new if one.name in init)),
        start=(*actions.start, *(one for one, _ in new if one.name not in init)),
    )


def _with_new_sandbox(pod: Pod, view: PodView, attempt: int) -> Actions:
    """In a new sandbox everything starts anew, unless the restart policy leaves nothing to start."""
    kill = bool(view.sandboxes)
    begun = any(container.state != "created" for container in view.containers)
    if not restarts_on_failure(pod) and attempt != 0 and begun:
        return Actions(kill_pod=True)
    start = tuple(
        container
        for container in pod.spec.containers
        if not (policy_of(container, pod) == "OnFailure" and _succeeded(view.container(container.name)))
    )
    if not start and has_created_main(pod, view):
        return Actions(kill_pod=True)
    if pod.spec.init_containers:
        first = pod.spec.init_containers[:1]
        return Actions(kill_pod=kill, create_sandbox=True, attempt=attempt, init=first)
    return Actions(kill_pod=kill, create_sandbox=True, attempt=attempt, start=start)


def _succeeded(found: ContainerView | None) -> bool:
    return found is not None and found.state == "exited" and found.exit_code == 0


def _had_life(container: Container, view: PodView) -> bool:
    """A container that was created but not started does not count: this process was killed in between."""
    found = view.container(container.name)
    return found is not None and found.state != "created"


def _kill_of_running(
    container: Container, pod: Pod, found: ContainerView, probes: ProbeLookup
) -> tuple[Kill | None, bool]:
    """(the reason why a running container must end, True if it starts again)."""
    again = policy_of(container, pod) != "Never"
    why: tuple[KillReason, str] | None = None
    if definition_changed(container, found):
        why, again = ("Changed", "definition changed"), True
    elif probes(found.id, "liveness") == "failure":
        why = "LivenessProbe", "failed liveness probe"
    elif probes(found.id, "startup") == "failure":
        why = "StartupProbe", "failed startup probe"
    if why is None:
        return None, False
    suffix = RESTARTED if again else ""
    return Kill(found, why[0], f"Container {container.name} {why[1]}{suffix}"), again


RESYNC_STEPS = 4
"""Resyncs fall on multiples of a quarter of their period, 15 seconds of a minute. The pods of one multiple are looked
at together, with one wake-up; alone each takes three times the CPU time. The kubelet looks once a second."""
SHORTEST_STEP_S = 0.05
"""A period of 0, which --sync-frequency allows, is no loop without a pause."""


def resync_s(now: float, period_s: float, chance: float) -> float:
    """Seconds from `now` until a pod's next step: from one to one and a half periods, as `chance` says from 0 to 1."""
    step_s = max(period_s / RESYNC_STEPS, SHORTEST_STEP_S)
    first = math.floor((now + period_s) / step_s) + 1
    last = max(first, math.floor((now + 1.5 * period_s) / step_s))
    chosen = min(last, first + int(chance * (last - first + 1)))  # among these, or all pods would gather at one
    return max(chosen * step_s - now, SHORTEST_STEP_S)
