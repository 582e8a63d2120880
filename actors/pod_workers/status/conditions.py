"""Computes the conditions of a pod that the kubelet owns. Pure.

Source: pkg/kubelet/status/generate.go and
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions. Transition times are not set here.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors.pod_workers import policy
from actors.pod_workers.model import reasons, restart_policy
from actors.pod_workers.model.view import PodView
from proto.v1 import Container, ContainerStatus, Pod, PodCondition

RESTARTING = "AllContainersRestarting"
OWNED = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled", RESTARTING)
"""In the kubelet's order; the last one only if a container's rules may restart all containers."""

Statuses = Mapping[str, ContainerStatus]
"""Of all main and init containers, by name."""


def conditions(
    pod: Pod,
    view: PodView,
    statuses: Statuses,
    phase: str,
    others: tuple[PodCondition, ...],
    *,
    initialized: bool = False,
    restarting_all: bool = False,
    volumes: str = "",
) -> tuple[PodCondition, ...]:
    """`others` unchanged, then the kubelet's conditions.

    `initialized`: the last status has the condition Initialized.
    `volumes`: why the pod's volumes are not mounted, or do not answer at a container's start. The kubelet reports that
    in events only; here a pod that waits for its sandbox shows it in a condition, too.
    """
    sandbox_needed, _, _ = policy.sandbox_change(pod, view)
    containers_ready = _containers_ready(pod, statuses, phase)
    own: tuple[PodCondition, ...] = (
        _ready_to_start(pod, not sandbox_needed, volumes),
        _initialized(pod, statuses, phase, before=initialized),
        _ready(pod, containers_ready, others),
        containers_ready,
        _condition(pod, "PodScheduled", True),
    )
    if restart_policy.may_restart_all(pod):
        own = (*own, _restarting(pod, view, phase, restarting_all))
    return (*others, *own)


def _restarting(pod: Pod, view: PodView, phase: str, restarting_all: bool) -> PodCondition:
    """AllContainersRestarting: from a rule's match until all old containers are removed (KEP-5532).

    As in the kubelet, it has no observedGeneration.
    """
    ended = {"Succeeded": reasons.POD_COMPLETED, "Failed": reasons.POD_FAILED}.get(phase)
    names = {one.name for one in (*pod.spec.init_containers, *pod.spec.containers)}
    if ended is None and restarting_all and any(one.name in names for one in view.containers):
        reason, message = reasons.RESTART_ALL_STARTED, reasons.RESTART_ALL_STARTED_MESSAGE
        return PodCondition(type=RESTARTING, status="True", reason=reason, message=message)
    return PodCondition(type=RESTARTING, status="False", reason=ended)


def _condition(pod: Pod, kind: str, holds: bool, reason: str = "", message: str = "") -> PodCondition:
    return PodCondition(
        type=kind,
        observed_generation=pod.metadata.generation,
        status="True" if holds else "False",
        reason=reason or None,
        message=message or None,
    )


def _ready_to_start(pod: Pod, has_sandbox: bool, volumes: str) -> PodCondition:
    """Depends on the sandbox alone. In a running pod the container that waits for a volume says why."""
    if has_sandbox or not volumes:
        return _condition(pod, "PodReadyToStartContainers", has_sandbox)
    return _condition(pod, "PodReadyToStartContainers", False, reasons.FAILED_MOUNT, volumes)


def _any_main_started(pod: Pod, statuses: Statuses) -> bool:
    """True if a main container runs or has ended, in any sandbox: then the pod was initialized."""
    return any(main.name in statuses and _has_begun(statuses[main.name]) for main in pod.spec.containers)


def _has_begun(status: ContainerStatus) -> bool:
    return status.state.running is not None or status.state.terminated is not None


def _initialized(pod: Pod, statuses: Statuses, phase: str, *, before: bool) -> PodCondition:
    """Stays True, also in a new sandbox, whose init containers run again. Only the phase goes back then.

    The kubelet keeps it since it restarts all containers (KEP-5532), and does so for every pod.
    """
    unknown = [one.name for one in pod.spec.init_containers if one.name not in statuses]
    incomplete = [
        one.name for one in pod.spec.init_containers if one.name in statuses and not _done(one, statuses[one.name])
    ]
    if phase == "Succeeded" and not unknown:
        return _condition(pod, "Initialized", True, reasons.POD_COMPLETED)
    message = _listing(("unknown", unknown), ("incomplete", incomplete))
    if before or _any_main_started(pod, statuses) or not message:
        return _condition(pod, "Initialized", True)
    return _condition(pod, "Initialized", False, reasons.CONTAINERS_NOT_INITIALIZED, message)


def _done(container: Container, status: ContainerStatus) -> bool:
    return bool(status.started) if restart_policy.is_sidecar(container) else status.ready


def _containers_ready(pod: Pod, statuses: Statuses, phase: str) -> PodCondition:
    counted = [*(one for one in pod.spec.init_containers if restart_policy.is_sidecar(one)), *pod.spec.containers]
    unknown = [one.name for one in counted if one.name not in statuses]
    unready = [one.name for one in counted if one.name in statuses and not statuses[one.name].ready]
    if phase == "Succeeded" and not unknown:
        return _condition(pod, "ContainersReady", False, reasons.POD_COMPLETED)
    if phase == "Failed":
        return _condition(pod, "ContainersReady", False, reasons.POD_FAILED)
    message = _listing(("unknown", unknown), ("unready", unready))
    if message:
        return _condition(pod, "ContainersReady", False, reasons.CONTAINERS_NOT_READY, message)
    return _condition(pod, "ContainersReady", True)


def _ready(pod: Pod, containers_ready: PodCondition, others: tuple[PodCondition, ...]) -> PodCondition:
    if containers_ready.status != "True":
        return _condition(pod, "Ready", False, containers_ready.reason or "", containers_ready.message or "")
    known = {condition.type: condition.status for condition in others}
    problems = []
    for gate in pod.spec.readiness_gates:
        kind = gate.condition_type
        if kind not in known:
            problems.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif known[kind] != "True":
            problems.append(f'the status of pod readiness gate "{kind}" is not "True", but {known[kind]}')
    if problems:
        return _condition(pod, "Ready", False, reasons.READINESS_GATES_NOT_READY, ", ".join(problems))
    return _condition(pod, "Ready", True)


def _listing(*kinds: tuple[str, list[str]]) -> str:
    """`containers with unready status: [a b], ...`, a list as Go prints it."""
    return ", ".join(f"containers with {kind} status: [{' '.join(names)}]" for kind, names in kinds if names)
