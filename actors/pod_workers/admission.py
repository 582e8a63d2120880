"""Whether a new pod may run on this node. Pure.

The kubelet's predicate admit handler (pkg/kubelet/lifecycle/predicate.go: pods, cpu, memory), node pressure
(pkg/kubelet/eviction, Admit) and their words. Pods that run already are never asked again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from actors._cgroup.qos import qos_class
from proto.v1 import Pod
from proto.v1.quantity import milli_value, value

CRITICAL_PRIORITY = 2_000_000_000
"""system-critical: scheduling.SystemCriticalPriority."""


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


def requests(pod: Pod) -> tuple[int, int]:
    """(milli CPU, memory bytes) the scheduler counts: main containers and sidecars summed, or the largest init one."""
    cpu = memory = sidecar_cpu = sidecar_memory = init_cpu = init_memory = 0
    for container in pod.spec.init_containers:
        own_cpu, own_memory = _own(container.resources)
        if container.restart_policy == "Always":
            sidecar_cpu, sidecar_memory = sidecar_cpu + own_cpu, sidecar_memory + own_memory
            init_cpu, init_memory = max(init_cpu, sidecar_cpu), max(init_memory, sidecar_memory)
        else:
            init_cpu, init_memory = max(init_cpu, sidecar_cpu + own_cpu), max(init_memory, sidecar_memory + own_memory)
    for container in pod.spec.containers:
        own_cpu, own_memory = _own(container.resources)
        cpu, memory = cpu + own_cpu, memory + own_memory
    return max(cpu + sidecar_cpu, init_cpu), max(memory + sidecar_memory, init_memory)


def _own(resources: object) -> tuple[int, int]:
    wanted = getattr(resources, "requests", None) or {}
    return milli_value(wanted.get("cpu", 0)), value(wanted.get("memory", 0))


def is_critical(pod: Pod) -> bool:
    """Static pods of system-critical priority and mirror pods; see kubelet types.IsCriticalPod."""
    return (pod.spec.priority or 0) >= CRITICAL_PRIORITY


def admit(pod: Pod, others: Iterable[Pod], capacity: Capacity, pressure: Iterable[str]) -> Rejection | None:
    """None when the pod may run next to `others`, the pods that are admitted and not over."""
    conditions = set(pressure)
    if conditions and not is_critical(pod):
        best_effort = qos_class(pod) == "BestEffort"
        if conditions != {"MemoryPressure"} or best_effort:
            named = " ".join(sorted(conditions))
            return Rejection("Evicted", f"The node had condition: [{named}]. ")
    admitted = list(others)
    if len(admitted) + 1 > capacity.pods:
        return _short("pods", 1, len(admitted), capacity.pods)
    used_cpu = used_memory = 0
    for other in admitted:
        cpu, memory = requests(other)
        used_cpu, used_memory = used_cpu + cpu, used_memory + memory
    cpu, memory = requests(pod)
    if cpu and used_cpu + cpu > capacity.milli_cpu:
        return _short("cpu", cpu, used_cpu, capacity.milli_cpu)
    if memory and used_memory + memory > capacity.memory_bytes:
        return _short("memory", memory, used_memory, capacity.memory_bytes)
    return None


def _short(resource: str, wanted: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        f"OutOf{resource}",
        "Pod was rejected: Node didn't have enough resource: "
        f"{resource}, requested: {wanted}, used: {used}, capacity: {capacity}",
    )
