"""Plans the updates that give a pod's running containers the resources allocated to them. Pure.

Source: the kubelet's computePodResizeAction and doPodResizeAction (pkg/kubelet/kuberuntime). Compares the allocated
resources with those actuated last. A container is restarted if its resizePolicy asks for that, else updated while it
runs. `resources.resizing` decides on a resize, `resources.resize_steps` carries the plan out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from actors._cgroup.limits import Limits
from actors._cgroup.quantities.resources import (
    LinuxResources,
    PodLimits,
    milli_cpu_to_quota,
    milli_cpu_to_shares,
    shares_to_milli_cpu,
    with_pod_limits,
)
from actors._host.node.critical import is_static
from actors.pod_workers.model.allocation import PodResourceInfo
from actors.pod_workers.model.view import ContainerView, PodView
from proto.v1 import Container, Pod, ResourceRequirements
from proto.v1.scalars.quantity import milli_value, value

Resource = Literal["memory", "cpu"]

MIN_MILLI_CPU_REQUEST = 2
MIN_MILLI_CPU_LIMIT = 10
"""The kernel's least shares, and its least quota of 1 ms in 100 ms. Smaller amounts have the same effect."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """The resources of a container that can be resized; 0 is not set."""

    cpu_request: int = 0
    """Millicores."""
    cpu_limit: int = 0
    """Millicores."""
    memory_request: int = 0
    """Bytes."""
    memory_limit: int = 0
    """Bytes."""

    @classmethod
    def of(cls, resources: ResourceRequirements, of_pod: ResourceRequirements | None = None) -> Amounts:
        """From resources of a container, which has the limits of its pod that it lacks itself. Raises QuantityError."""
        limits = with_pod_limits(resources.limits, of_pod)
        return cls(
            cpu_request=milli_value(resources.requests.get("cpu", 0)),
            cpu_limit=milli_value(limits.get("cpu", 0)),
            memory_request=value(resources.requests.get("memory", 0)),
            memory_limit=value(limits.get("memory", 0)),
        )


@dataclass(frozen=True, slots=True)
class Update:
    """One running container to update."""

    container: Container
    found: ContainerView
    current: Amounts
    desired: Amounts

    def amounts(self, resource: Resource, memory_done: bool) -> Amounts:
        """The amounts to send when `resource` is updated. `memory_done`: its memory was updated before."""
        current, desired = self.current, self.desired
        if resource == "memory":
            return Amounts(current.cpu_request, current.cpu_limit, desired.memory_request, desired.memory_limit)
        memory = desired if memory_done else current
        return Amounts(desired.cpu_request, desired.cpu_limit, memory.memory_request, memory.memory_limit)


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """The updates of one pod, memory before CPU."""

    restarts: tuple[tuple[Container, ContainerView], ...] = ()
    memory: tuple[Update, ...] = ()
    """Shrinking containers first, so that growing ones have room in the pod's cgroup."""
    cpu: tuple[Update, ...] = ()
    pod: bool = False
    """Update the pod's cgroup even if no container is updated."""

    def __bool__(self) -> bool:
        return bool(self.restarts or self.memory or self.cpu or self.pod)

    def without(self, identities: Iterable[str]) -> ResizePlan:
        """A copy without these containers, by CRI ID, which are killed anyway."""
        killed = frozenset(identities)
        return ResizePlan(
            tuple(pair for pair in self.restarts if pair[1].id not in killed),
            tuple(update for update in self.memory if update.found.id not in killed),
            tuple(update for update in self.cpu if update.found.id not in killed),
            self.pod,
        )


def plan(pod: Pod, view: PodView, actuated: PodResourceInfo | None) -> ResizePlan:
    """The plan for `pod`, which has its allocated resources. Raises QuantityError.

    A container that does not run gets its resources at its start. Without a record in `actuated`, a container has the
    amounts that the runtime shows, else the allocated ones. So a lost record restarts nothing.
    """
    if is_static(pod):
        return ResizePlan()
    known = actuated if actuated is not None else PodResourceInfo()
    restarts: list[tuple[Container, ContainerView]] = []
    memory: list[Update] = []
    cpu: list[Update] = []
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        update = _update(container, pod.spec.resources, view, known)
        if update is None:
            continue
        if _needs_restart(update):
            restarts.append((container, update.found))
            continue
        was, wanted = update.current, update.desired
        _insert(memory, update, wanted.memory_limit - was.memory_limit, wanted.memory_request - was.memory_request)
        _insert(cpu, update, wanted.cpu_limit - was.cpu_limit, wanted.cpu_request - was.cpu_request)
    own = actuated is not None and _pod_differs(pod.spec.resources, known.pod)
    return ResizePlan(tuple(restarts), tuple(memory), tuple(cpu), pod=own or bool(restarts))


def _pod_differs(wanted: ResourceRequirements | None, was: ResourceRequirements | None) -> bool:
    empty = ResourceRequirements()
    return Amounts.of(wanted or empty) != Amounts.of(was or empty)


def _update(
    container: Container, of_pod: ResourceRequirements | None, view: PodView, actuated: PodResourceInfo
) -> Update | None:
    """The update of a running container; None if it needs none. `of_pod`: the pod's own allocated resources."""
    found = view.container(container.name)
    if found is None or found.state != "running":
        return None
    desired = Amounts.of(container.resources, of_pod)
    recorded = actuated.containers.get(container.name)
    current = Amounts.of(recorded, actuated.pod) if recorded is not None else _shown(found, desired)
    if desired.cpu_request <= MIN_MILLI_CPU_REQUEST and current.cpu_request <= MIN_MILLI_CPU_REQUEST:
        desired = dataclasses.replace(desired, cpu_request=current.cpu_request)
    if desired.cpu_limit <= MIN_MILLI_CPU_LIMIT and current.cpu_limit <= MIN_MILLI_CPU_LIMIT:
        desired = dataclasses.replace(desired, cpu_limit=current.cpu_limit)
    return Update(container, found, current, desired) if current != desired else None


def _shown(found: ContainerView, desired: Amounts) -> Amounts:
    """The amounts that the runtime shows; the desired ones if it shows none.

    A container without a CPU request has shares by its limit, which are no request.
    """
    shown = found.resources
    if shown is None:
        return desired
    return Amounts(
        cpu_request=shown.milli_cpu_request if desired.cpu_request else 0,
        cpu_limit=shown.milli_cpu_limit,
        memory_request=desired.memory_request,
        memory_limit=shown.memory_limit_bytes,
    )


def _needs_restart(update: Update) -> bool:
    was, wanted = update.current, update.desired
    changed = {
        "cpu": (was.cpu_request, was.cpu_limit) != (wanted.cpu_request, wanted.cpu_limit),
        "memory": (was.memory_request, was.memory_limit) != (wanted.memory_request, wanted.memory_limit),
    }
    rules = {rule.resource_name: rule.restart_policy for rule in reversed(update.container.resize_policy)}
    return any(changed[name] and rules.get(name) == "RestartContainer" for name in changed)


def _insert(updates: list[Update], update: Update, limit_change: int, request_change: int) -> None:
    change = limit_change or request_change
    if change > 0:
        updates.append(update)
    elif change < 0:
        updates.insert(0, update)


# The pod's cgroup


@dataclass(frozen=True, slots=True)
class CgroupSteps:
    """Limits to write to the pod's cgroup before and after its containers are updated, for one resource."""

    before: tuple[PodLimits, ...] = ()
    after: tuple[PodLimits, ...] = ()


def memory_steps(now: Limits, wanted: PodLimits) -> CgroupSteps:
    """A pod's memory limit grows before those of its containers, and shrinks after them. None changes nothing."""
    steps = _ordered(_change(now.memory_bytes, wanted.memory_bytes), PodLimits(memory_bytes=wanted.memory_bytes))
    if wanted.memory_min_bytes is None:
        return steps
    protected = PodLimits(memory_min_bytes=wanted.memory_min_bytes, memory_low_bytes=wanted.memory_low_bytes)
    return CgroupSteps((protected, *steps.before), steps.after)


def cpu_steps(now: Limits, wanted: PodLimits) -> CgroupSteps:
    """The same for CPU: limits grow before requests, and shrink after them."""
    quota = PodLimits(cpu_quota_us=wanted.cpu_quota_us, cpu_period_us=wanted.cpu_period_us)
    unlimited = (wanted.cpu_quota_us or 0) < 0
    limit = _ordered(_change(now.cpu_quota_us, None if unlimited else wanted.cpu_quota_us, lift=unlimited), quota)
    request = _ordered((wanted.cpu_shares or 0) - now.cpu_shares, PodLimits(cpu_shares=wanted.cpu_shares))
    return CgroupSteps((*limit.before, *request.before), (*request.after, *limit.after))


def _change(now: int | None, wanted: int | None, *, lift: bool = False) -> int:
    """Positive to grow, negative to shrink, 0 to leave. `lift`: `wanted` None means no limit, not as it is."""
    if not wanted:
        return 1 if lift and now is not None else 0
    return -1 if now is None else wanted - now


def _ordered(change: int, step: PodLimits) -> CgroupSteps:
    if change > 0:
        return CgroupSteps(before=(step,))
    return CgroupSteps(after=(step,)) if change < 0 else CgroupSteps()


def as_pod_limits(now: Limits) -> PodLimits:
    """The present limits of a pod's cgroup."""
    quota = -1 if now.cpu_quota_us is None else now.cpu_quota_us
    return PodLimits(now.cpu_shares, quota, now.cpu_period_us, now.memory_bytes)


def merged(limits: PodLimits, step: PodLimits) -> PodLimits:
    """The limits after this step. Memory QoS is left out: the runtime is not told of it."""
    names = ("cpu_shares", "cpu_quota_us", "cpu_period_us", "memory_bytes")
    changes = {name: getattr(step, name) for name in names}
    return dataclasses.replace(limits, **{name: value for name, value in changes.items() if value is not None})


def without_overhead(limits: PodLimits, pod: Pod) -> LinuxResources:
    """The limits of a pod's cgroup less its spec.overhead, which the runtime is told apart from them.

    Source: subtractOverheadFromResourceConfig of pkg/kubelet/kuberuntime. No limit stays none.
    """
    overhead = pod.spec.overhead
    cpu, memory = milli_value(overhead.get("cpu", 0)), value(overhead.get("memory", 0))
    shares, quota, period = limits.cpu_shares or 0, limits.cpu_quota_us or 0, limits.cpu_period_us or 0
    return LinuxResources(
        cpu_period=period,
        cpu_quota=quota - milli_cpu_to_quota(cpu, period) if quota > 0 else quota,
        cpu_shares=milli_cpu_to_shares(shares_to_milli_cpu(shares) - cpu) if shares and cpu else shares,
        memory_limit_in_bytes=limits.memory_bytes - memory if limits.memory_bytes else 0,
    )


def shrinking_limits(updates: Iterable[Update]) -> dict[str, int]:
    """CRI ID to new memory limit of the containers whose limit becomes lower, or that get one."""
    return {
        update.found.id: update.desired.memory_limit
        for update in updates
        if update.desired.memory_limit
        and (not update.current.memory_limit or update.desired.memory_limit < update.current.memory_limit)
    }
