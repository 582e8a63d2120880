"""The cgroups above those of pods: all pods together, their QoS classes, and what is reserved beside them.

The limits are pure, `apply` and `apply_existing` write them. Source: pkg/kubelet/cm (node_container_manager_linux.go,
qos_container_manager_linux.go) and https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/.
Not covered: huge pages, which stay unbounded at these levels.
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
    """What a pod takes of the node."""

    @property
    def requests(self) -> Amounts: ...
    @property
    def qos(self) -> QosClass: ...


def of_all_pods(machine: Machine, settings: Settings) -> PodLimits:
    """Of `kubepods`: what is not reserved, or the whole machine where that is not to be enforced, since without any
    shares the pods would starve beside the system. Raises QuantityError."""
    if "pods" in settings.enforce_node_allocatable:
        return _limits(enforced(machine, settings))
    return _limits(capacity(machine, settings) | ({PID: machine.pids} if machine.pids else {}))


def of_reservation(reservation: Mapping[str, str], *, compressible: bool) -> PodLimits:
    """Of the cgroup that a reservation names: all of it, or only what can be taken back at any time, CPU time.
    Raises QuantityError."""
    amounts = {name: amount(name, quantity) for name, quantity in reservation.items()}
    return _limits({"cpu": amounts["cpu"]} if compressible and "cpu" in amounts else {} if compressible else amounts)


def of_classes(pods: Iterable[Requests], allocatable_memory: int, percent: int) -> dict[QosClass, PodLimits]:
    """Of the classes below `kubepods` by what its pods request. `percent`: how much of the memory that a better class
    requests is kept from the worse ones; 0 limits no memory."""
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
    """Make the cgroup and limit it. Raises OSError: the kernel takes no limit below what is in use."""
    if driver == "systemd":
        _systemctl(systemd_command(name, limits, unified=tree.unified))
    else:
        fs.create(name, limits, tree)


def apply_existing(name: str, limits: PodLimits, driver: str, tree: Hierarchy) -> None:
    """Limit a cgroup that is somebody else's. Raises OSError, FileNotFoundError when it is not there."""
    name = "/" + name.strip("/")
    for controller in ("cpu", "memory"):
        where = tree.path(controller, name)
        if where is not None and not os.path.isdir(where):
            raise FileNotFoundError(f'["{name.strip("/")}"] cgroup does not exist')
    apply(name, limits, driver, tree)


def systemd_command(name: str, limits: PodLimits, *, unified: bool) -> list[str]:
    """What has systemd limit the slice: its own files are not for others to write."""
    properties: list[tuple[str, int | None]]
    if unified:
        weight = None if limits.cpu_shares is None else shares_to_weight(limits.cpu_shares)
        properties = [("CPUWeight", weight), ("MemoryMax", limits.memory_bytes), ("TasksMax", limits.pids)]
    else:
        properties = [
            ("CPUShares", limits.cpu_shares),
            ("MemoryLimit", limits.memory_bytes),
            ("TasksMax", limits.pids),
        ]
    given = [f"{key}={value}" for key, value in properties if value is not None]
    return ["systemctl", "set-property", "--runtime", os.path.basename(name), *given]


def _systemctl(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{' '.join(command)} does not end") from error
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
