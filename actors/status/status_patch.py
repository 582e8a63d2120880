"""The fields of a pod's status that the node owns, and the patch that writes them. Pure.

A pod's status has several owners. The node owns the container states, the addresses, the phase and some conditions;
readiness gates and the scheduler's conditions belong to other clients. Only the node's fields are compared and written.
A patch has all of them, so that a repeat, or a patch made for an older state of the object, does no harm.
Source: mergePodStatus of pkg/kubelet/status/status_manager.go, pkg/kubelet/types/pod_status.go (owners of conditions),
https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/ (strategic merge).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from actors._host.node.conditions import KUBELET_CONDITIONS
from actors._host.restart import is_sidecar, may_restart_all, restarts_after
from actors.status.policy import TERMINAL
from proto.pods.status import Stage
from proto.v1 import Container, ContainerStatus, Pod, PodCondition, PodStatus, ResourceRequirements, to_dict

DISRUPTION_TARGET = "DisruptionTarget"
"""Owned by the node when it evicted the pod, else by the client that did."""
READINESS = ("Ready", "ContainersReady")
STOPPED_STAGES: tuple[Stage, ...] = ("terminated", "released")
"""Stages in which no process of the pod runs any more."""

_GONE_WHEN_ABSENT = (
    "reason", "message", "observedGeneration", "hostIP", "podIP", "qosClass",
    "initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses", "resize",
)  # fmt: skip
"""Written as null when absent, so that the server drops them. Maps and merged lists are handled one by one."""


def node_status(pod: Pod, stage: Stage, api: PodStatus) -> PodStatus:
    """The node's fields of `pod.status` to write now, where the API server has `api`.

    A terminal phase is written only once nothing of the pod runs. A terminal phase that the API server has is kept, and
    so is the end of a container that may not restart. While the phase stays, another client's reason and message are
    kept where the node has none (generateAPIPodStatus of pkg/kubelet/kubelet_pods.go).
    """
    status = pod.status
    over = stage in STOPPED_STAGES
    disrupted = says_disruption(pod, stage, api)
    phase, reason, message = status.phase, status.reason, status.message
    if api.phase in TERMINAL and status.phase != api.phase:
        phase, reason, message = api.phase, api.reason, api.message
    elif status.phase in TERMINAL and api.phase not in TERMINAL and not over:
        phase, reason, message = api.phase or "Pending", api.reason, api.message
    if phase == api.phase:
        reason, message = reason or api.reason, message or api.message
    ready = any(one.type in READINESS and one.status == "True" for one in status.conditions)
    conditions = tuple(
        _unready(one, phase) if ready and phase in TERMINAL and one.type in READINESS else one
        for one in status.conditions
        if one.type in KUBELET_CONDITIONS or (disrupted and one.type == DISRUPTION_TARGET)
    )
    return replace(
        _without_others(status),
        phase=phase,
        reason=reason,
        message=message,
        conditions=conditions,
        container_statuses=_forward(pod, status.container_statuses, api.container_statuses),
        init_container_statuses=_forward(pod, status.init_container_statuses, api.init_container_statuses),
    )


def says_disruption(pod: Pod, stage: Stage, api: PodStatus) -> bool:
    """True when the API server is to have the pod's condition DisruptionTarget: not before the terminal phase."""
    over = stage in STOPPED_STAGES and (pod.status.phase in TERMINAL or api.phase in TERMINAL)
    return over and any(one.type == DISRUPTION_TARGET for one in pod.status.conditions)


def with_disruption_time(status: PodStatus, api: PodStatus, now: str) -> PodStatus:
    """`status` with the time at which the API server gets the condition DisruptionTarget: it has one, or `now`.

    The time that the condition has on the node is that of the eviction's begin.
    """
    there = next((one for one in api.conditions if one.type == DISRUPTION_TARGET), None)
    return replace(
        status,
        conditions=tuple(
            one
            if one.type != DISRUPTION_TARGET
            else replace(
                one,
                last_transition_time=there.last_transition_time or now
                if there is not None and there.status == one.status
                else now,
            )
            for one in status.conditions
        ),
    )


def _unready(condition: PodCondition, phase: str) -> PodCondition:
    """Return a readiness condition as it is in a terminal phase.

    It has the time of the one before until pod_workers publishes the pod's end, too.
    """
    reason = "PodFailed" if phase == "Failed" else "PodCompleted"
    return replace(condition, status="False", reason=reason, message=None)


def _without_others(status: PodStatus) -> PodStatus:
    """Drop the fields that controllers in the cluster write."""
    return replace(
        status,
        nominated_node_name=None,
        resource_claim_statuses=(),
        extended_resource_claim_status=None,
        node_allocatable_resource_claim_statuses=(),
    )


def _forward(
    pod: Pod, statuses: tuple[ContainerStatus, ...], before: tuple[ContainerStatus, ...]
) -> tuple[ContainerStatus, ...]:
    """Keep the API server's status of containers that ended and may not restart.

    The server refuses a whole status in which such a container runs again (checkContainerStateTransition).
    """
    ended = {one.name: one for one in before if one.state.terminated is not None}
    if not ended or may_restart_all(pod):
        return statuses
    specs = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    return tuple(
        ended[one.name]
        if one.state.terminated is None and one.name in ended and _final(pod, specs.get(one.name), ended[one.name])
        else one
        for one in statuses
    )


def _final(pod: Pod, container: Container | None, ended: ContainerStatus) -> bool:
    assert ended.state.terminated is not None
    if container is None or is_sidecar(container):
        return False
    return not restarts_after(container, pod, ended.state.terminated.exit_code)


def with_api_times(status: PodStatus, api: PodStatus) -> PodStatus:
    """`status` with the API server's start time, and its transition times of conditions with the same status.

    For the first status of a pod after a start of this actor, whose checkpoint may lack the last second, or be lost.
    """
    known = {one.type: one for one in api.conditions if one.type in KUBELET_CONDITIONS and one.last_transition_time}
    conditions = tuple(
        replace(one, last_transition_time=old.last_transition_time)
        if (old := known.get(one.type)) is not None and old.status == one.status
        else one
        for one in status.conditions
    )
    return replace(status, conditions=conditions, start_time=api.start_time or status.start_time)


# Comparison


def comparable(api: PodStatus, own: PodStatus) -> PodStatus:
    """The API server's values of the fields and conditions that `own` has."""
    types = KUBELET_CONDITIONS | {one.type for one in own.conditions}
    return replace(_without_others(api), conditions=tuple(one for one in api.conditions if one.type in types))


def digest(part: PodStatus) -> bytes:
    """A digest of 12 bytes that does not depend on the order of the conditions."""
    ordered = replace(part, conditions=tuple(sorted(part.conditions, key=lambda one: one.type)))
    return hashlib.blake2b(msgspec.msgpack.encode(ordered), digest_size=12).digest()


def is_ready(status: PodStatus) -> bool:
    """True when the condition Ready is True."""
    return any(one.type == "Ready" and one.status == "True" for one in status.conditions)


# Patches


def patch_of(api_uid: str, own: PodStatus, api: PodStatus) -> dict[str, Any]:
    """The strategic merge patch that changes the node's fields from `api` to `own`; it applies to this UID only."""
    wanted = to_dict(own)
    status: dict[str, Any] = dict.fromkeys(_GONE_WHEN_ABSENT) | wanted
    status |= _conditions(own, api)
    status["resources"] = _resources(own.resources, api.resources)
    merged = {
        "hostIPs": _addresses((one.ip for one in own.host_ips), (one.ip for one in api.host_ips)),
        "podIPs": _addresses((one.ip for one in own.pod_ips), (one.ip for one in api.pod_ips)),
        "allocatedResources": own.allocated_resources | _removed_keys(api.allocated_resources, own.allocated_resources),
    }
    return {"metadata": {"uid": api_uid}, "status": status | {name: value for name, value in merged.items() if value}}


def _conditions(own: PodStatus, api: PodStatus) -> dict[str, Any]:
    """Each of our conditions in full, deletions of stale ones, and the order. The server merges them by type.

    Empty reasons and messages are written as null: the object may have some from a write that we do not know of.
    """
    ours = {one.type for one in own.conditions}
    others = [one.type for one in api.conditions if one.type not in ours | KUBELET_CONDITIONS]
    gone = [one.type for one in api.conditions if one.type in KUBELET_CONDITIONS - ours]
    order = [*others, *(one.type for one in own.conditions)]
    current = [{"reason": None, "message": None} | to_dict(one) for one in own.conditions]
    removed = [{"$patch": "delete", "type": kind} for kind in gone]
    if not current and not removed:
        return {}
    found: dict[str, Any] = {"conditions": [*current, *removed]}
    if order:
        found["$setElementOrder/conditions"] = [{"type": kind} for kind in order]
    return found


def _addresses(wanted: Iterable[str], there: Iterable[str]) -> list[dict[str, str]]:
    """A list that the server merges by address, with delete directives for stale addresses.

    A directive is written only for an address that is stored: 1.20 stores the whole list, directives included, where it
    has none.
    """
    own = list(wanted)
    return [*({"ip": ip} for ip in own), *({"$patch": "delete", "ip": ip} for ip in there if ip not in own)]


def _removed_keys(there: Iterable[str], wanted: Iterable[str]) -> dict[str, None]:
    """Nulls, with which a merge patch removes the keys that are not wanted."""
    return dict.fromkeys(set(there).difference(wanted))


def _resources(own: ResourceRequirements | None, api: ResourceRequirements | None) -> dict[str, Any] | None:
    if own is None:
        return None
    there = api or ResourceRequirements()
    found = to_dict(own)
    for name, new, old in (("limits", own.limits, there.limits), ("requests", own.requests, there.requests)):
        if gone := _removed_keys(old, new):
            found[name] = dict(new) | gone
    return found
