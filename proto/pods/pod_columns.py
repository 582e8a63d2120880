"""Computes the columns of `kubectl get pods` from a pod's spec and status.

Pure functions. The rules for STATUS, READY and RESTARTS are those of kubectl's table printer
(https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/), so that both tools show the same words.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proto.common.rfc3339 import seconds_of
from proto.v1 import Container, ContainerStatus, Pod

MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY


class Columns(NamedTuple):
    """One line of `supervisor pods`."""

    namespace: str
    name: str
    ready: str
    status: str
    restarts: str
    age: str
    ip: str


class _Tally(NamedTuple):
    """Sums over a list of container statuses."""

    ready: int = 0
    restarts: int = 0
    last_restart: float | None = None


def columns(pod: Pod, now: float) -> Columns:
    """The table's columns at `now`, seconds since the epoch."""
    sidecars = {c.name for c in pod.spec.init_containers if _is_sidecar(c)}
    init_reason, initializing, sidecars_ready = _initialization(pod, sidecars)
    reason = init_reason or _phase_reason(pod)
    if initializing and not _condition(pod, "Initialized"):
        tally = _restarts(pod.status.init_container_statuses)
        ready = sidecars_ready
    else:
        main_reason, ready_now = _main_containers(pod)
        reason = main_reason or reason
        running_sidecars = (s for s in pod.status.init_container_statuses if s.name in sidecars)
        tally = _restarts((*running_sidecars, *pod.status.container_statuses))
        ready = sidecars_ready + ready_now
    total = len(pod.spec.containers) + len(sidecars)
    return Columns(
        namespace=pod.metadata.namespace or "default",
        name=pod.metadata.name,
        ready=f"{ready}/{total}",
        status=_deletion(pod) or reason or "Unknown",
        restarts=_restarts_text(tally, now),
        age=_age(pod, now),
        ip=pod.status.pod_ip or "<none>",
    )


def status(pod: Pod) -> str:
    """The STATUS column alone."""
    return columns(pod, 0.0).status


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _phase_reason(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason == "SchedulingGated":
            return "SchedulingGated"
    return pod.status.reason or pod.status.phase or ""


def _initialization(pod: Pod, sidecars: set[str]) -> tuple[str, bool, int]:
    """The `Init:` word of the first unfinished init container, True when there is one, and the ready sidecars."""
    ready = 0
    for index, container in enumerate(pod.status.init_container_statuses):
        ended, waiting = container.state.terminated, container.state.waiting
        if ended is not None and ended.exit_code == 0:
            continue
        if container.name in sidecars and container.started:
            ready += container.ready
            continue
        if ended is not None:
            return f"Init:{ended.reason or _exit_word(ended.signal, ended.exit_code)}", True, ready
        if waiting is not None and waiting.reason and waiting.reason != "PodInitializing":
            return f"Init:{waiting.reason}", True, ready
        return f"Init:{index}/{len(pod.spec.init_containers)}", True, ready
    return "", False, ready


def _main_containers(pod: Pod) -> tuple[str, int]:
    """The reason of the first container with one, else "", and the number of ready containers."""
    reason, ready = "", 0
    for container in reversed(pod.status.container_statuses):
        waiting, ended = container.state.waiting, container.state.terminated
        if waiting is not None and waiting.reason:
            reason = waiting.reason
        elif ended is not None:
            reason = ended.reason or _exit_word(ended.signal, ended.exit_code)
        elif container.ready and container.state.running is not None:
            ready += 1
    if reason == "Completed" and ready:
        reason = "Running" if _condition(pod, "Ready") else "NotReady"
    return reason, ready


def _exit_word(signal: int | None, exit_code: int) -> str:
    return f"Signal:{signal}" if signal else f"ExitCode:{exit_code}"


def _deletion(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp is None:
        return ""
    if pod.status.reason == "NodeLost":
        return "Unknown"
    return "" if pod.status.phase in ("Succeeded", "Failed") else "Terminating"


def _condition(pod: Pod, kind: str) -> bool:
    return any(c.type == kind and c.status == "True" for c in pod.status.conditions)


def is_ready(pod: Pod) -> bool:
    """True when the pod's Ready condition is True."""
    return _condition(pod, "Ready")


def _restarts(statuses: Iterable[ContainerStatus]) -> _Tally:
    count, last = 0, None
    for container in statuses:
        count += container.restart_count
        before = container.last_state.terminated
        if before is not None and before.finished_at:
            ended = seconds_of(before.finished_at)
            last = ended if last is None or ended > last else last
    return _Tally(restarts=count, last_restart=last)


def _restarts_text(tally: _Tally, now: float) -> str:
    if tally.restarts and tally.last_restart is not None:
        return f"{tally.restarts} ({human_duration(now - tally.last_restart)} ago)"
    return str(tally.restarts)


def _age(pod: Pod, now: float) -> str:
    # A static pod without a mirror has no creationTimestamp, because the API server does not have it.
    since = pod.metadata.creation_timestamp or pod.status.start_time
    return human_duration(now - seconds_of(since)) if since else "<unknown>"


def human_duration(seconds: float) -> str:
    """An age in kubectl's format: two units while the second one matters, else one."""
    s = int(seconds)
    if s < -1:
        return "<invalid>"
    if s < 2 * MINUTE:
        return f"{max(s, 0)}s"
    if s < 3 * HOUR:
        return _two(s, MINUTE, "m", 1, "s", 10 * MINUTE)
    if s < 2 * DAY:
        return _two(s, HOUR, "h", MINUTE, "m", 8 * HOUR)
    if s < 2 * YEAR:
        return _two(s, DAY, "d", HOUR, "h", 8 * DAY)
    return _two(s, YEAR, "y", DAY, "d", 8 * YEAR)


def _two(seconds: int, big: int, big_unit: str, small: int, small_unit: str, until: int) -> str:
    whole, rest = divmod(seconds, big)
    second = rest // small if seconds < until else 0
    return f"{whole}{big_unit}" + (f"{second}{small_unit}" if second else "")
