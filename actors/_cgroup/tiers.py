"""Limits the cgroups above pods: the one of all pods, the QoS classes, and the reserved cgroups beside them.

Pure functions compute the limits; `apply` and `apply_existing` write them. Huge pages stay unlimited at these levels.
Source: pkg/kubelet/cm (node_container_manager_linux.go, qos_container_manager_linux.go) and
https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Protocol

from actors._cgroup import fs
from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.quantities.allocatable import PID, Amounts, amount, capacity, enforced
from actors._cgroup.quantities.qos import QosClass
from actors._cgroup.quantities.resources import MIN_SHARES, PodLimits, milli_cpu_to_shares, shares_to_weight
from actors._host.machine import Machine
from proto.agent.settings import Settings

SYSTEMCTL_S = 10.0


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
    if "pods" in settings.enforce_node_allocatable:
        return _limits(enforced(machine, settings))
    return _limits(capacity(machine, settings) | ({PID: machine.pids} if machine.pids else {}))


def of_reservation(reservation: Mapping[str, str], *, compressible: bool) -> PodLimits:
    """Return the limits of a reservation's cgroup. Raises QuantityError.

    `compressible`: only those of CPU time, which can be taken back at any time.
    """
    amounts = {name: amount(name, quantity) for name, quantity in reservation.items()}
    return _limits({name: total for name, total in amounts.items() if name == "cpu" or not compressible})


def of_classes(pods: Iterable[Requests], allocatable_memory: int, percent: int) -> dict[QosClass, PodLimits]:
    """Return the limits of the QoS classes below `kubepods`, given the requests of all pods.

    `percent` of the memory that a class requests is denied to the classes below it; 0 sets no memory limit.
    """
    cpu, memory = 0, {"Guaranteed": 0, "Burstable": 0, "BestEffort": 0}
    for pod in pods:
        cpu += pod.requests.get("cpu", 0) if pod.qos == "Burstable" else 0
        memory[pod.qos] += pod.requests.get("memory", 0)
    burstable = allocatable_memory - memory["Guaranteed"] * percent // 100
    best_effort = burstable - memory["Burstable"] * percent // 100
    return {
        "Burstable": PodLimits(milli_cpu_to_shares(cpu), memory_bytes=burstable if percent else None),
        "BestEffort": PodLimits(MIN_SHARES, memory_bytes=best_effort if percent else None),
    }


def _limits(amounts: Mapping[str, int]) -> PodLimits:
    return PodLimits(
        cpu_shares=milli_cpu_to_shares(amounts["cpu"]) if "cpu" in amounts else None,
        memory_bytes=amounts.get("memory"),
        pids=amounts.get(PID),
    )


def apply(name: str, limits: PodLimits, driver: str, tree: Hierarchy) -> None:
    """Create the cgroup and set its limits. Raises OSError: the kernel rejects a limit below the current use."""
    if driver == "systemd":
        _systemctl(systemd_command(name, limits, unified=tree.unified))
    else:
        fs.create(name, limits, tree)


def apply_existing(name: str, limits: PodLimits, driver: str, tree: Hierarchy) -> None:
    """Limit a cgroup that the agent does not create. Raises OSError; FileNotFoundError when it is missing."""
    name = "/" + name.strip("/")
    for controller in ("cpu", "memory"):
        where = tree.path(controller, name)
        if where is not None and not os.path.isdir(where):
            raise FileNotFoundError(f'["{name.strip("/")}"] cgroup does not exist')
    apply(name, limits, driver, tree)


def systemd_command(name: str, limits: PodLimits, *, unified: bool) -> list[str]:
    """Return the command by which systemd limits a slice. Only systemd may write a slice's files."""
    keys, cpu = ("CPUShares", "MemoryLimit", "TasksMax"), limits.cpu_shares
    if unified:
        keys, cpu = ("CPUWeight", "MemoryMax", "TasksMax"), None if cpu is None else shares_to_weight(cpu)
    properties = zip(keys, (cpu, limits.memory_bytes, limits.pids), strict=True)
    given = [f"{key}={value}" for key, value in properties if value is not None]
    return ["systemctl", "set-property", "--runtime", os.path.basename(name), *given]


def _systemctl(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"cannot run {' '.join(command)}: no end after {SYSTEMCTL_S:.0f} s") from error
    if done.returncode:
        raise OSError(f"cannot run {' '.join(command)}: {done.stderr.strip()}")
