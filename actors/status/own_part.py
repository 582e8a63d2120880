"""What this node says of a pod to the API server, and the patch that says it. Pure.

A pod's status belongs to several: the node's are the container states, the addresses, the phase and some conditions;
readiness gates and the scheduler's conditions are others'. Compared and written is the node's part only, and a patch
says all of it, so that a repeat, or one that was made for an older state of the object, does no harm. Source:
mergePodStatus of pkg/kubelet/status/status_manager.go, pkg/kubelet/types/pod_status.go (who owns which condition),
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
"""The node's when it has evicted the pod, else whoever's has."""
READINESS = ("Ready", "ContainersReady")
OVER: tuple[Stage, ...] = ("terminated", "released")
"""Nothing of the pod runs any more."""

_GONE_WHEN_ABSENT = (
    "reason", "message", "observedGeneration", "hostIP", "podIP", "qosClass",
    "initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses", "resize",
)  # fmt: skip
"""Said to be empty rather than left out. Maps and merged lists are taken care of one by one."""


def own_part(pod: Pod, stage: Stage, api: PodStatus) -> PodStatus:
    """The node's part of `pod.status` as the API server is to have it now, where it has `api`.

    A terminal phase waits until nothing of the pod runs; one that the API server has is never left; a container that
    has ended for good stays so.
    """
    status = pod.status
    over = stage in OVER
    phase, reason, message = status.phase, status.reason, status.message
    if api.phase in TERMINAL and status.phase != api.phase:
        phase, reason, message = api.phase, api.reason, api.message
    elif status.phase in TERMINAL and api.phase not in TERMINAL and not over:
        phase, reason, message = api.phase or "Pending", api.reason, api.message
    disrupted = over and phase in TERMINAL
    conditions = tuple(
        _unready(one) if phase in TERMINAL and one.type in READINESS else one
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


def _unready(condition: PodCondition) -> PodCondition:
    return condition if condition.status == "False" else replace(condition, status="False")


def _without_others(status: PodStatus) -> PodStatus:
    """Without the fields that controllers above the node write."""
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
    """Those that have ended for good as the API server has them, whatever is said of them now: it would refuse all of
    a status in which one is on its way again (checkContainerStateTransition)."""
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


def adopted(status: PodStatus, api: PodStatus) -> PodStatus:
    """`status` with the times that the API server has been told already: what has not turned since keeps its time.

    For the first status of a pod after a start of this actor, which may have forgotten the last second, or all.
    """
    known = {one.type: one for one in api.conditions if one.type in KUBELET_CONDITIONS and one.last_transition_time}
    conditions = tuple(
        replace(one, last_transition_time=old.last_transition_time)
        if (old := known.get(one.type)) is not None and old.status == one.status
        else one
        for one in status.conditions
    )
    return replace(status, conditions=conditions, start_time=api.start_time or status.start_time)


# Comparing


def same_part(api: PodStatus, own: PodStatus) -> PodStatus:
    """What the API server has of the fields and conditions that `own` is about."""
    types = KUBELET_CONDITIONS | {one.type for one in own.conditions}
    return replace(_without_others(api), conditions=tuple(one for one in api.conditions if one.type in types))


def digest(part: PodStatus) -> bytes:
    """Equal for equal parts, in whatever order the conditions stand."""
    ordered = replace(part, conditions=tuple(sorted(part.conditions, key=lambda one: one.type)))
    return hashlib.blake2b(msgspec.msgpack.encode(ordered), digest_size=12).digest()


def is_ready(status: PodStatus) -> bool:
    """Whether Services may send to the pod."""
    return any(one.type == "Ready" and one.status == "True" for one in status.conditions)


# Saying


def patch_of(api_uid: str, own: PodStatus, api: PodStatus) -> dict[str, Any]:
    """The strategic merge patch that makes `own` of the node's part; for the object with that UID and no other."""
    wanted = to_dict(own)
    status: dict[str, Any] = dict.fromkeys(_GONE_WHEN_ABSENT) | wanted
    status |= _conditions(own, api)
    status["resources"] = _resources(own.resources, api.resources)
    merged = {
        "hostIPs": _addresses((one.ip for one in own.host_ips), (one.ip for one in api.host_ips)),
        "podIPs": _addresses((one.ip for one in own.pod_ips), (one.ip for one in api.pod_ips)),
        "allocatedResources": own.allocated_resources | _gone(api.allocated_resources, own.allocated_resources),
    }
    return {"metadata": {"uid": api_uid}, "status": status | {name: value for name, value in merged.items() if value}}


def _conditions(own: PodStatus, api: PodStatus) -> dict[str, Any]:
    """Merged by type on the server: each of ours whole, those of ours that are no more, and in which order they are.

    reason and message are said to be empty where they are: the object may have them from a time we do not know of.
    """
    ours = {one.type for one in own.conditions}
    others = [one.type for one in api.conditions if one.type not in ours | KUBELET_CONDITIONS]
    gone = [one.type for one in api.conditions if one.type in KUBELET_CONDITIONS - ours]
    order = [*others, *(one.type for one in own.conditions)]
    said = [{"reason": None, "message": None} | to_dict(one) for one in own.conditions]
    removed = [{"$patch": "delete", "type": kind} for kind in gone]
    if not said and not removed:
        return {}
    found: dict[str, Any] = {"conditions": [*said, *removed]}
    if order:
        found["$setElementOrder/conditions"] = [{"type": kind} for kind in order]
    return found


def _addresses(wanted: Iterable[str], there: Iterable[str]) -> list[dict[str, str]]:
    """A list that the server merges by address. Directives only for what is there: older servers (1.20) take a list
    that they have nothing of as it stands, directives and all."""
    own = list(wanted)
    return [*({"ip": ip} for ip in own), *({"$patch": "delete", "ip": ip} for ip in there if ip not in own)]


def _gone(there: Iterable[str], wanted: Iterable[str]) -> dict[str, None]:
    return dict.fromkeys(set(there).difference(wanted))


def _resources(own: ResourceRequirements | None, api: ResourceRequirements | None) -> dict[str, Any] | None:
    if own is None:
        return None
    there = api or ResourceRequirements()
    found = to_dict(own)
    for name, new, old in (("limits", own.limits, there.limits), ("requests", own.requests, there.requests)):
        if gone := _gone(old, new):
            found[name] = dict(new) | gone
    return found
