"""Completes and normalises the status that a pod worker computed, before readers get it. Pure.

Covers transition times, the start time, terminal phases, the form of timestamps, the length of messages and the order
of pods. Source: pkg/kubelet/status/status_manager.go (updateStatusInternal, normalizeStatus) of Kubernetes 1.36.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from proto.common import rfc3339
from proto.v1 import ContainerState, ContainerStatus, Pod, PodCondition, PodStatus

TERMINAL = ("Succeeded", "Failed")
MAX_POD_MESSAGE_BYTES = 12 * 1024
"""Limit of all termination messages of a pod together; each container gets an equal part."""
SHORT_BYTES = 1024
"""Limit of each message in a status that the API server refused for its size."""

_CONTAINER_FIELDS = ("init_container_statuses", "container_statuses", "ephemeral_container_statuses")
_NORMAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def settled(status: PodStatus, before: PodStatus | None, now: str) -> PodStatus:
    """The status to keep, given the one kept before (None for a new pod) and the time `now`, RFC 3339 in seconds.

    A condition keeps its transition time while its status stays. The first start time stays. A terminal phase stays,
    with its reason and message. Settling the same status again changes nothing.
    """
    before = before if before is not None else PodStatus()
    limit = MAX_POD_MESSAGE_BYTES // max(1, sum(len(getattr(status, name)) for name in _CONTAINER_FIELDS))
    result = replace(
        status,
        start_time=timestamp(before.start_time or status.start_time or now),
        conditions=_timed(status.conditions, before.conditions, now),
        **_container_statuses(status, lambda state: _state(state, limit)),
    )
    if before.phase in TERMINAL and result.phase != before.phase:
        result = replace(result, phase=before.phase, reason=before.reason, message=before.message)
    return result


def ended_with(status: PodStatus, reason: str, message: str) -> bool:
    """True for a terminal status with this reason and message."""
    return status.phase in TERMINAL and (status.reason, status.message or "") == (reason, message)


def _timed(
    conditions: tuple[PodCondition, ...], before: tuple[PodCondition, ...], now: str
) -> tuple[PodCondition, ...]:
    known = {condition.type: condition for condition in before}
    timed = []
    for condition in conditions:
        old = known.get(condition.type)
        same = old is not None and old.status == condition.status
        since = old.last_transition_time if same and old is not None else None
        since = since or timestamp(condition.last_transition_time) or now
        timed.append(replace(condition, last_transition_time=since))
    return tuple(timed)


def _container_statuses(
    status: PodStatus, change: Callable[[ContainerState], ContainerState]
) -> dict[str, tuple[ContainerStatus, ...]]:
    """The fields of container statuses, with `change` applied to each state."""
    return {
        name: tuple(
            replace(one, state=change(one.state), last_state=change(one.last_state)) for one in getattr(status, name)
        )
        for name in _CONTAINER_FIELDS
    }


def _state(state: ContainerState, limit: int) -> ContainerState:
    if state.running is not None:
        return ContainerState(running=replace(state.running, started_at=timestamp(state.running.started_at)))
    if state.terminated is None:
        return state
    ended = replace(
        state.terminated,
        started_at=timestamp(state.terminated.started_at),
        finished_at=timestamp(state.terminated.finished_at),
        message=_cut(state.terminated.message, limit),
    )
    return ContainerState(terminated=ended)


def _cut(message: str | None, limit: int) -> str | None:
    if message is None or len(message) * 4 <= limit:
        return message
    return message.encode()[:limit].decode(errors="ignore")


def shortened(status: PodStatus) -> PodStatus:
    """The status with every message cut to SHORT_BYTES."""

    def cut(state: ContainerState) -> ContainerState:
        if state.waiting is not None:
            return ContainerState(waiting=replace(state.waiting, message=_cut(state.waiting.message, SHORT_BYTES)))
        return _state(state, SHORT_BYTES)

    return replace(
        status,
        message=_cut(status.message, SHORT_BYTES),
        conditions=tuple(replace(one, message=_cut(one.message, SHORT_BYTES)) for one in status.conditions),
        **_container_statuses(status, cut),
    )


def timestamp(time: str | None) -> str | None:
    """A time in the form of metav1.Time: RFC 3339, UTC, whole seconds. Other texts stay as they are; empty is None."""
    if not time or _NORMAL.fullmatch(time):
        return time or None
    try:
        return rfc3339.seconds(datetime.datetime.fromisoformat(time).astimezone(datetime.UTC).timestamp())
    except (ValueError, OverflowError):  # no time, or one in the year 0 or 10000 in UTC
        return time


def ordered(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Sort by namespace and name, then by UID: a pod and its successor may have the same name for a while."""
    return tuple(sorted(pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)))
