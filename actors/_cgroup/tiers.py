"""Limits the cgroups above pods: the one of all pods, the QoS classes, and the reserved cgroups beside them.

Pure functions compute the limits; `apply` and `apply_existing` write them; `has_limits` compares them with the files.
Huge pages are unlimited at these levels.
Source: pkg/kubelet/cm (node_container_manager_linux.go, qos_container_manager_linux.go) and
https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from actors._cgroup import fs
from actors._cgroup.hierarchy import Hierarchy, huge_page_sizes
from actors._cgroup.limits import files
from actors._cgroup.names import QOS_CLASSES
from actors._cgroup.quantities import memory_qos
from actors._cgroup.quantities.allocatable import PID, Amounts, amount, capacity, enforced
from actors._cgroup.quantities.qos import QosClass
from actors._cgroup.quantities.resources import MIN_SHARES, PodLimits, milli_cpu_to_shares
from actors._host.machine import Machine
from proto.agent.settings import Settings

_NO_HUGE_PAGE_LIMIT = 1 << 62
"""The kubelet's, which the kernel shows as this number."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Requests(Protocol):
    """Requests and QoS class of a pod."""

    @property
    def requests(self) -> Amounts: ...
    @property
    def qos(self) -> QosClass: ...


def of_all_pods(machine: Machine, settings: Settings) -> PodLimits:
    """Return the limits of `kubepods`: capacity less reservations. Raises QuantityError.

    Without enforceNodeAllocatable it is the whole machine: without CPU shares pods would starve beside the system.
    """
    amounts = capacity(machine, settings) | ({PID: machine.pids} if machine.pids else {})
    if "pods" in settings.enforce_node_allocatable:
        amounts = enforced(machine, settings)
    # systemd takes away a controller that no property of a slice asks for, and containers need cpuset.
    limits = replace(_limits(amounts), cpus=machine.cpu_list)
    if memory_qos.enabled(settings):  # then `of_classes` protects
        return limits
    return replace(limits, memory_min_bytes=0, memory_low_bytes=0)  # of an earlier start with Memory QoS


def of_reservation(reservation: Mapping[str, str], settings: Settings, *, compressible: bool) -> PodLimits:
    """Return the limits of a reservation's cgroup. Raises QuantityError.

    `compressible`: only those of CPU time, which can be taken back at any time. With Memory QoS the kernel does not
    reclaim the reserved memory. Without it a protection stays: the operator, whose cgroup it is, may have set it.
    """
    amounts = {name: amount(name, quantity) for name, quantity in reservation.items()}
    limits = _limits({name: total for name, total in amounts.items() if name == "cpu" or not compressible})
    return replace(limits, memory_min_bytes=limits.memory_bytes) if memory_qos.enabled(settings) else limits


def of_classes(pods: Iterable[Requests], allocatable_memory: int, settings: Settings) -> dict[QosClass, PodLimits]:
    """Return the limits of the QoS classes below `kubepods`, given the requests of all pods.

    With qosReserved, classes below another cannot use a share of the memory that it requests.
    With Memory QoS also those of `kubepods`, as of the class Guaranteed.
    """
    percent = settings.memory_reserved_by_qos_percent
    cpu, memory = 0, dict.fromkeys(QOS_CLASSES, 0)
    for pod in pods:
        cpu += pod.requests.get("cpu", 0) if pod.qos == "Burstable" else 0
        memory[pod.qos] += pod.requests.get("memory", 0)
    burstable = allocatable_memory - memory["Guaranteed"] * percent // 100
    best_effort = burstable - memory["Burstable"] * percent // 100
    found: dict[QosClass, PodLimits] = {
        "Burstable": PodLimits(milli_cpu_to_shares(cpu), memory_bytes=_left(burstable) if percent else None),
        "BestEffort": PodLimits(MIN_SHARES, memory_bytes=_left(best_effort) if percent else None),
    }
    for qos, (least, low) in memory_qos.of_classes(memory, settings).items():
        found[qos] = replace(found.get(qos, PodLimits()), memory_min_bytes=least, memory_low_bytes=low)
    return found


def _left(memory: int) -> int | None:
    """A limit of memory; None, so that the last one stays, if pods that run already request more than is allocatable.

    Limited to 0, the kernel would kill the pods of the class.
    """
    return memory if memory >= 0 else None


def _limits(amounts: Mapping[str, int]) -> PodLimits:
    return PodLimits(
        cpu_shares=milli_cpu_to_shares(amounts["cpu"]) if "cpu" in amounts else None,
        memory_bytes=amounts.get("memory"),
        pids=amounts.get(PID),
    )


def apply(name: str, limits: PodLimits, driver: str, tree: Hierarchy) -> None:
    """Create a cgroup of pods and set its limits. Raises OSError: the kernel rejects a limit below the current use."""
    limits = replace(
        _without_huge_page_limits(limits),
        memory_min_bytes=_unless_zero_already(limits.memory_min_bytes, "memory.min", name, tree),
        memory_low_bytes=_unless_zero_already(limits.memory_low_bytes, "memory.low", name, tree),
    )
    fs.ensure(name, limits, driver, tree)


def _unless_zero_already(count: int | None, file: str, name: str, tree: Hierarchy) -> int | None:
    """`count`; None for a zero that the cgroup's file has already. Raises OSError.

    systemd would keep a zero as a property of the slice, also on nodes that never had Memory QoS.
    """
    where = tree.path("memory", name)
    if count != 0 or where is None:
        return count
    try:
        return None if Path(where, file).read_text().strip() == "0" else 0
    except FileNotFoundError:  # a new cgroup has zeros, and cgroup v1 has no such file
        return None


def has_limits(name: str, limits: PodLimits, tree: Hierarchy) -> bool:
    """Return True while a cgroup of pods has what `apply` gave it. Raises OSError."""
    wanted = files(_without_huge_page_limits(limits), unified=tree.unified)
    places = ((controller, tree.path(controller, name), file, int(text)) for controller, file, text in wanted)
    return all(_shows(controller, Path(where, file), number) for controller, where, file, number in places if where)


def _shows(controller: str, file: Path, number: int) -> bool:
    try:
        found = file.read_text().strip()
    except FileNotFoundError:  # `apply` has written neither huge pages that the kernel lacks nor a zero
        return controller == "hugetlb" or number == 0
    shown = number // _PAGE_BYTES * _PAGE_BYTES if controller == "memory" else number  # the kernel counts whole pages
    return found == str(shown)


def _without_huge_page_limits(limits: PodLimits) -> PodLimits:
    return replace(limits, huge_pages=tuple((size, _NO_HUGE_PAGE_LIMIT) for size in huge_page_sizes()))


def apply_existing(name: str, limits: PodLimits, driver: str, tree: Hierarchy) -> None:
    """Limit a cgroup that the agent does not create. Raises OSError; FileNotFoundError when it is missing."""
    name = "/" + name.strip("/")
    for controller in ("cpu", "memory"):
        where = tree.path(controller, name)
        if where is not None and not os.path.isdir(where):
            raise FileNotFoundError(f'["{name.strip("/")}"] cgroup does not exist')
    if driver == "systemd" and not name.endswith(".slice"):
        raise OSError(
            f"cannot limit {name} with the systemd driver: it is not a slice; name one, such as /system.slice"
        )
    fs.ensure(name, limits, driver, tree)
