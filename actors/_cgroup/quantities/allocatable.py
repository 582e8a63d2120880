"""Computes node allocatable: capacity less reservations and hard eviction thresholds. Pure.

Amounts are thousandths of a core for `cpu`, whole units for everything else. Source: pkg/kubelet/cm
(node_container_manager_linux.go), pkg/kubelet/nodestatus (MachineInfo) and
https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from actors._host.machine import Machine
from proto.v1.scalars.quantity import milli_value, value

if TYPE_CHECKING:
    from proto.agent.settings import Settings

Amounts = dict[str, int]

PID = "pid"
"""Name of processes in reservations. It is not a resource of pods."""

_EVICTION_RESERVES = {"memory.available": "memory", "nodefs.available": "ephemeral-storage"}


def amount(resource: str, quantity: str | int | float) -> int:
    """Return a quantity of a resource as an amount. Raises QuantityError."""
    return milli_value(quantity) if resource == "cpu" else value(quantity)


def capacity(machine: Machine, settings: Settings) -> Amounts:
    """Return the whole capacity of the machine, by resource; without local storage if that is not accounted for."""
    local = {"ephemeral-storage": machine.root_fs_bytes} if settings.local_storage_capacity_isolation else {}
    return {
        "cpu": machine.cpus * 1000,
        "memory": machine.memory_bytes,
        **local,
        **machine.huge_page_bytes,
        "pods": settings.max_pods,
    }


def allocatable(machine: Machine, settings: Settings) -> Amounts:
    """Return the total that pods may request, by resource. Raises QuantityError."""
    whole, kept = capacity(machine, settings), withheld(machine, settings)
    return _less_huge_pages({name: max(0, all_ - kept.get(name, 0)) for name, all_ in whole.items()}, machine)


def withheld(machine: Machine, settings: Settings) -> Amounts:
    """Return the amounts that pods may not request: reservations and hard thresholds. Raises QuantityError."""
    kept = reserved(settings)
    thresholds = {} if settings.allocatable_ignores_eviction else settings.eviction_hard
    for resource, quantity in eviction_reserved(thresholds, capacity(machine, settings)).items():
        kept[resource] = kept.get(resource, 0) + quantity
    return kept


def enforced(machine: Machine, settings: Settings) -> Amounts:
    """Return the limits of the cgroup of all pods, with `pid`. Raises QuantityError.

    Unlike `allocatable` they include the eviction thresholds, because pods have to be able to reach these. They include
    the memory of huge pages, too, as in the kubelet (getNodeAllocatableInternalAbsolute).
    """
    kept = reserved(settings)
    whole = capacity(machine, settings) | ({PID: machine.pids} if machine.pids else {})
    return {name: max(0, all_ - kept.get(name, 0)) for name, all_ in whole.items()}


def reserved(settings: Settings) -> Amounts:
    """Return the sum of systemReserved and kubeReserved. Raises QuantityError."""
    total: Amounts = {}
    for reservation in (settings.system_reserved, settings.kube_reserved):
        for resource, quantity in reservation.items():
            total[resource] = total.get(resource, 0) + amount(resource, quantity)
    return total


def eviction_reserved(thresholds: Mapping[str, str], whole: Mapping[str, int]) -> Amounts:
    """Return the amounts below hard eviction thresholds, where a pod would be evicted. Raises QuantityError."""
    found: Amounts = {}
    for signal, resource in _EVICTION_RESERVES.items():
        text = thresholds.get(signal, "").strip() if resource in whole else ""
        if text.endswith("%"):
            found[resource] = share(whole[resource], float(text[:-1])) if text not in ("0%", "100%") else 0
        elif text:
            found[resource] = value(text)
    return found


def share(whole: int, percent: float) -> int:
    """Return a percentage of an amount, rounded like the kubelet's 32-bit floats."""
    (fraction,) = struct.unpack("f", struct.pack("f", percent / 100))
    return int(whole * fraction)


def _less_huge_pages(amounts: Amounts, machine: Machine) -> Amounts:
    # Memory in huge pages is not available as ordinary memory.
    taken = sum(machine.huge_page_bytes.values())
    return amounts | {"memory": max(0, amounts["memory"] - taken)}
