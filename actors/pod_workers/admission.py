"""Whether a new pod may run on this node. Pure.

The kubelet's predicate admit handler (pkg/kubelet/lifecycle/predicate.go: pods, cpu, memory), node pressure
(pkg/kubelet/eviction, Admit) and their words. Pods that run already are never asked again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from actors._cgroup import totals
from actors._cgroup.critical import is_critical
from actors._cgroup.qos import qos_class
from proto.v1 import Pod
from proto.v1.quantity import milli_value, value


@dataclass(frozen=True, slots=True)
class Capacity:
    """Allocatable of the node."""

    milli_cpu: int
    memory_bytes: int
    pods: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod may not run; it becomes Failed with these."""

    reason: str
    message: str


def admit(pod: Pod, others: Iterable[Pod], capacity: Capacity, pressure: Iterable[str]) -> Rejection | None:
    """None when the pod may run next to `others`, the pods that are admitted and not over."""
    conditions = set(pressure)
    if conditions and not is_critical(pod) and (conditions != {"MemoryPressure"} or qos_class(pod) == "BestEffort"):
        return Rejection("Evicted", f"The node had condition: [{' '.join(sorted(conditions))}]. ")
    admitted = list(others)
    if len(admitted) + 1 > capacity.pods:
        return _short("pods", 1, len(admitted), capacity.pods)
    used = [_requests(other) for other in admitted]
    cpu, memory = _requests(pod)
    used_cpu, used_memory = sum(one for one, _ in used), sum(one for _, one in used)
    if cpu and used_cpu + cpu > capacity.milli_cpu:
        return _short("cpu", cpu, used_cpu, capacity.milli_cpu)
    if memory and used_memory + memory > capacity.memory_bytes:
        return _short("memory", memory, used_memory, capacity.memory_bytes)
    return None


def _requests(pod: Pod) -> tuple[int, int]:
    """(milli CPU, memory bytes) as the scheduler counts them."""
    wanted = totals.requests(pod)
    return milli_value(wanted.get("cpu", 0)), value(wanted.get("memory", 0))


def _short(resource: str, wanted: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        f"OutOf{resource}",
        "Pod was rejected: Node didn't have enough resource: "
        f"{resource}, requested: {wanted}, used: {used}, capacity: {capacity}",
    )
