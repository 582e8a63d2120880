"""Computes the phase of a pod from the statuses of its containers. Pure.

Source: getPhase of pkg/kubelet/kubelet_pods.go and
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors._host.node.critical import is_static
from actors.pod_workers.decide.init_policy import completed_init_containers, has_created_main, init_exit_code
from actors.pod_workers.model import reasons, restart_policy
from actors.pod_workers.model.view import PodView
from actors.pod_workers.status.conditions import Statuses
from actors.pod_workers.status.container_status import UNKNOWN
from proto.v1 import Container, ContainerStateTerminated, ContainerStatus, Pod


@dataclass(slots=True)
class _Count:
    """Numbers of containers by state."""

    pending_init: int = 0
    """Regular init containers that have not ended."""
    pending_sidecars: int = 0
    """Sidecars that have not started."""
    failed_init: int = 0
    """Failed without a retry by policy or rule."""
    unknown: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    restarting: int = 0
    """Stopped containers that will start again."""
    succeeded: int = 0


def compute_phase(pod: Pod, view: PodView, statuses: Statuses, *, terminal: bool) -> str:
    """Pending, Running, Succeeded or Failed. `terminal`: no container starts again under any policy."""
    count = _Count()
    past = completed_init_containers(pod, view)
    for container in pod.spec.init_containers:
        status = statuses.get(container.name)
        if restart_policy.is_sidecar(container):
            _count_sidecar(status, count)
        else:
            _count_init(pod, container, status, count, past=container.name in past)
    for container in pod.spec.containers:
        _count_main(pod, container, statuses.get(container.name), count)
    if count.failed_init:
        return "Failed"
    pending = count.pending_init or (count.pending_sidecars and not _was_initialized(pod, view))
    if pending or count.waiting or count.unknown:
        return "Pending"
    if count.running:
        return "Running"
    return _stopped(pod, count, terminal=terminal) if count.stopped else "Pending"


def _was_initialized(pod: Pod, view: PodView) -> bool:
    """True once a main container was created in the present sandbox; its state does not matter.

    A container of an older sandbox, from before a reboot, does not count: its pod is initialized again.
    """
    sandbox = view.ready_sandbox
    return sandbox is not None and has_created_main(pod, view, sandbox.id)


def _stopped(pod: Pod, count: _Count, *, terminal: bool) -> str:
    """Every container has ended."""
    all_succeeded = count.stopped == count.succeeded
    # A static pod has no owner that acts on its end. In the kubelet it stays Running until it is removed.
    ends = terminal and not is_static(pod)
    if count.restarting and not ends:
        return "Running"
    return "Succeeded" if all_succeeded else "Failed"


def _count_init(pod: Pod, container: Container, status: ContainerStatus | None, count: _Count, *, past: bool) -> None:
    """`past`: see `init_exit_code`."""
    ended = None
    if status is not None:
        ended = status.state.terminated or (status.last_state.terminated if status.state.waiting is not None else None)
    if ended is None:
        count.pending_init += 1
    else:
        exit_code = init_exit_code(container, ended, past=past)
        count.failed_init += exit_code != 0 and not _init_restarts(pod, container, ended, exit_code)


def _count_sidecar(status: ContainerStatus | None, count: _Count) -> None:
    if status is None:
        count.unknown += 1
    elif status.state.running is not None:
        count.running += 1
        count.pending_sidecars += not status.started
    elif status.state.waiting is not None and status.last_state.terminated is None:
        count.pending_sidecars += 1
        count.waiting += 1


def _init_restarts(pod: Pod, container: Container, ended: ContainerStateTerminated, exit_code: int) -> bool:
    """A lost container has no exit code, so its policy decides without rules, as in `decide.init_policy`."""
    if ended == UNKNOWN:
        return restart_policy.policy_of(container, pod) != "Never"
    return _restarts(pod, container, ended, exit_code)


def _restarts(pod: Pod, container: Container, ended: ContainerStateTerminated, exit_code: int) -> bool:
    reset = ended.reason == reasons.RESTARTING_ALL_CONTAINERS
    return reset or restart_policy.restarts_after(container, pod, exit_code)


def _count_main(pod: Pod, container: Container, status: ContainerStatus | None, count: _Count) -> None:
    if status is None:
        count.unknown += 1
    elif status.state.running is not None:
        count.running += 1
    elif status.state.terminated is not None:
        count.stopped += 1
        count.restarting += _restarts(pod, container, status.state.terminated, status.state.terminated.exit_code)
        count.succeeded += status.state.terminated.exit_code == 0
    elif status.last_state.terminated is not None:
        count.stopped += 1
        ended = status.last_state.terminated
        count.restarting += _restarts(pod, container, ended, ended.exit_code)
    else:
        count.waiting += 1
