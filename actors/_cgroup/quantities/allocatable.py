"""What of the node is there for pods: capacity less what is reserved. Pure.

Source: pkg/kubelet/cm (node_container_manager_linux.go), pkg/kubelet/nodestatus (MachineInfo) and
https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/. Amounts are milli CPUs for `cpu`, whole
units for everything else.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Protocol

from actors._host.machine import Machine
from proto.v1.scalars.quantity import milli_value, value

Amounts = dict[str, int]

PID = "pid"
"""How the reservations name processes; not a resource of pods."""

_EVICTION_RESERVES = {"memory.available": "memory", "nodefs.available": "ephemeral-storage"}


class Reservations(Protocol):
    """The part of proto.agent.settings.Settings that decides what is kept from pods."""

    @property
    def max_pods(self) -> int: ...
    @property
    def system_reserved(self) -> dict[str, str]: ...
    @property
    def kube_reserved(self) -> dict[str, str]: ...
    @property
    def eviction_hard(self) -> dict[str, str]: ...


def amount(resource: str, quantity: str | int | float) -> int:
    """A quantity of a resource as a number. Raises QuantityError."""
    return milli_value(quantity) if resource == "cpu" else value(quantity)


def capacity(machine: Machine, settings: Reservations) -> Amounts:
    """All of it."""
    return {
        "cpu": machine.cpus * 1000,
        "memory": machine.memory_bytes,
        "ephemeral-storage": machine.root_fs_bytes,
        **machine.huge_page_bytes,
        "pods": settings.max_pods,
    }


def allocatable(machine: Machine, settings: Reservations) -> Amounts:
    """What pods may request in all. Raises QuantityError."""
    whole = capacity(machine, settings)
    kept = reserved(settings)
    for resource, quantity in eviction_reserved(settings.eviction_hard, whole).items():
        kept[resource] = kept.get(resource, 0) + quantity
    return _less_huge_pages({name: max(0, all_ - kept.get(name, 0)) for name, all_ in whole.items()}, machine)


def enforced(machine: Machine, settings: Reservations) -> Amounts:
    """What the cgroup of all pods is limited to: as `allocatable` with eviction thresholds left in, since pods have to
    be able to reach these. With `pid`. Raises QuantityError."""
    kept = reserved(settings)
    whole = capacity(machine, settings) | ({PID: machine.pids} if machine.pids else {})
    return _less_huge_pages({name: max(0, all_ - kept.get(name, 0)) for name, all_ in whole.items()}, machine)


def reserved(settings: Reservations) -> Amounts:
    """Of systemReserved and kubeReserved together. Raises QuantityError."""
    total: Amounts = {}
    for reservation in (settings.system_reserved, settings.kube_reserved):
        for resource, quantity in reservation.items():
            total[resource] = total.get(resource, 0) + amount(resource, quantity)
    return total


def eviction_reserved(thresholds: Mapping[str, str], whole: Mapping[str, int]) -> Amounts:
    """What hard eviction thresholds keep free: a pod that counts on it would be evicted. Raises QuantityError."""
    found: Amounts = {}
    for signal, resource in _EVICTION_RESERVES.items():
        text = thresholds.get(signal, "").strip()
        if text.endswith("%"):
            found[resource] = share(whole[resource], float(text[:-1])) if text not in ("0%", "100%") else 0
        elif text:
            found[resource] = value(text)
    return found


def share(whole: int, percent: float) -> int:
    """A percentage of an amount; the kubelet keeps percentages as 32 bit floats, which shows in the last digits."""
    (fraction,) = struct.unpack("f", struct.pack("f", percent / 100))
    return int(whole * fraction)


def _less_huge_pages(amounts: Amounts, machine: Machine) -> Amounts:
    """Memory in huge pages is no longer there as memory."""
    taken = sum(machine.huge_page_bytes.values())
    return amounts | {"memory": max(0, amounts["memory"] - taken)}
