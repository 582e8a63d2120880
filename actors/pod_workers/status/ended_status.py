"""Computes the last status of a pod whose processes have all ended. Pure.

Source: the status manager's TerminatePod (pkg/kubelet/status/status_manager.go). A container without a known exit
counts as failed, so that no pod becomes Succeeded by mistake. Every pod but a static one becomes Succeeded or Failed.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors._host.node.critical import is_static
from actors.pod_workers.decide.init_policy import init_exit_code
from actors.pod_workers.model.restart_policy import is_sidecar
from actors.pod_workers.model.termination_request import TERMINAL_PHASES
from actors.pod_workers.status.container_status import UNKNOWN
from proto.v1 import ContainerState, ContainerStatus, Pod, PodStatus

_NOT_FOUND = ContainerState(terminated=UNKNOWN)


def ended_status(pod: Pod, status: PodStatus) -> PodStatus:
    """`status` with an exit for every container that was tried, and with a terminal phase. Idempotent."""
    main, init = status.container_statuses, status.init_container_statuses
    if _had_initialized(pod, status):
        main = tuple(map(_ended, main))
    tried = _tried(init)
    phase = status.phase if is_static(pod) or status.phase in TERMINAL_PHASES else "Failed"
    return replace(
        status,
        container_statuses=main,
        init_container_statuses=(*map(_ended, init[:tried]), *init[tried:]),
        phase=phase,
    )


def _ended(status: ContainerStatus) -> ContainerStatus:
    return status if status.state.terminated is not None else replace(status, state=_NOT_FOUND)


def _had_initialized(pod: Pod, status: PodStatus) -> bool:
    """True if the main containers may have been tried."""
    if not pod.spec.init_containers or any(map(_was_tried, status.container_statuses)):
        return True
    container, last = pod.spec.init_containers[-1], status.init_container_statuses[-1:]
    if is_sidecar(container):  # main containers follow its start; its exit code tells nothing
        return any(one.type == "Initialized" and one.status == "True" for one in status.conditions)
    ends = [state.terminated for one in last for state in (one.state, one.last_state)]
    return any(end is not None and init_exit_code(container, end) == 0 for end in ends)


def _was_tried(status: ContainerStatus) -> bool:
    return status.state.waiting is None or status.last_state.terminated is not None


def _tried(init: tuple[ContainerStatus, ...]) -> int:
    """Number of init containers that were tried, at least the first."""
    tried = [index + 1 for index, status in enumerate(init) if _was_tried(status)]
    return max(tried, default=min(1, len(init)))
