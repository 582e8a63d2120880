"""Memory QoS (KEP-2570) of Kubernetes 1.36: memory.min, memory.low and memory.high on cgroup v2. Pure.

memoryReservationPolicy TieredReservation protects requests: memory.min for Guaranteed pods, memory.low for Burstable
ones. memoryThrottlingFactor gives memory.high of containers. The API server has set a request for each limit.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from actors._cgroup.quantities.qos import QosClass, qos_class
from actors._host.system import kernel_version
from proto.v1 import Container, Pod
from proto.v1.scalars.quantity import value

if TYPE_CHECKING:
    from proto.agent.settings import Settings

PAGE = mmap.PAGESIZE
_NO_LIVELOCK = (5, 9)
"""The first kernel in which a process at memory.high always gets on."""


class Protection(NamedTuple):
    """Bytes for memory.min and memory.low; None leaves the kernel's value."""

    min_bytes: int | None
    low_bytes: int | None


NONE = Protection(None, None)


def enabled(settings: Settings) -> bool:
    """True with feature gate MemoryQoS."""
    return settings.memory_throttling_factor > 0


def problem(settings: Settings, *, unified: bool, release: str) -> str:
    """Return a warning if this machine does not suit Memory QoS, else nothing. `release`: the kernel's."""
    if not enabled(settings):
        return ""
    if not unified:
        return "feature gate MemoryQoS has no effect on cgroup v1"
    if kernel_version(release) < _NO_LIVELOCK:
        return f"containers can hang at memory.high on kernel {release}; use 5.9 or later, or switch MemoryQoS off"
    return ""


def protection(qos: QosClass, request: int, settings: Settings) -> Protection:
    """Return what protects `request` bytes of a container or a pod. Zeros undo what an earlier policy has set."""
    if not enabled(settings):
        return NONE
    tiered = settings.memory_reservation_policy == "TieredReservation"
    return Protection(
        request if tiered and qos == "Guaranteed" else 0,
        request if tiered and qos == "Burstable" else 0,
    )


def of_classes(requests: Mapping[QosClass, int], settings: Settings) -> dict[QosClass, Protection]:
    """Return the protection of the QoS cgroups, from the sums of their pods' requests.

    `Guaranteed` is the cgroup of all pods: the kernel protects a child only within the protection of its parent.
    Without the gate, zeros undo for Burstable what an earlier start with Memory QoS has set.
    """
    if not enabled(settings):
        return {"Burstable": Protection(0, 0)}
    tiered = settings.memory_reservation_policy == "TieredReservation"
    guaranteed, burstable = (requests["Guaranteed"], requests["Burstable"]) if tiered else (0, 0)
    return {"Guaranteed": Protection(guaranteed + burstable, None), "Burstable": Protection(None, burstable)}


def container_files(
    pod: Pod, container: Container, settings: Settings, allocatable_bytes: int
) -> list[tuple[str, str]]:
    """Return the files of the container's cgroup and their content. `allocatable_bytes`: the node's, 0 if unknown.

    Raises QuantityError.
    """
    if not enabled(settings):
        return []
    limit = value(container.resources.limits.get("memory", 0))
    request = value(container.resources.requests.get("memory", 0)) or limit
    protected = protection(qos_class(pod), request, settings)
    files = [("memory.min", str(protected.min_bytes)), ("memory.low", str(protected.low_bytes))]
    high = memory_high(request, limit, allocatable_bytes, settings.memory_throttling_factor)
    return [*files, ("memory.high", str(high))] if high else files


def memory_high(request: int, limit: int, allocatable: int, factor: float) -> int:
    """Return memory.high of a container, in whole pages; 0 for none.

    A container without a limit has the node's allocatable memory instead. None is set where request and limit are
    equal: also for a BestEffort container, as in 1.36 (kubernetes issue 137685).
    """
    most = limit or allocatable
    if request == limit or not most:
        return 0
    high = math.floor((request + (most - request) * factor) / PAGE) * PAGE
    return high if high > request else 0
