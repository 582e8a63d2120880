"""Attributes OOM kills to pods and formats their events. Pure.

Source of the node's event: pkg/kubelet/oom/oom_watcher_linux.go of Kubernetes 1.36. Events of pods are ours: the
kubelet has none. Their reason is that of an ended container's status.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from actors._cgroup.names import QOS_CLASSES, pod_uid, qos_cgroup
from actors.oom.kills import Kill
from proto.common.safe_text import component_problem, one_line

NODE_REASON = "SystemOOM"
POD_REASON = "OOMKilled"
MOST_AGE_S = 3600.0
"""Age at which a kill is too old for an event: events are kept for an hour."""
NO_LIMIT = 1 << 60
"""A limit of at least this many bytes means none: cgroup v1 writes about 2^63."""

_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Place:
    """The pod of a cgroup."""

    uid: str
    cgroup: str
    """The pod's cgroup."""
    container_id: str = ""
    """Empty for a process in no container's cgroup."""


def place(cgroup: str, driver: str, root: str) -> Place | None:
    """Return the pod of a cgroup at or below a pod's cgroup; None for other cgroups.

    `driver` and `root`: Settings.cgroup_driver and cgroup_root. Only the first components count, because a container
    may name those below its own.
    """
    for qos in QOS_CLASSES:
        above = qos_cgroup(driver, root, qos)
        if cgroup.startswith(f"{above}/"):
            own, _, below = cgroup[len(above) + 1 :].partition("/")
            uid = pod_uid(driver, own)
            if uid and not component_problem(uid):
                identity = _ID.search(below.partition("/")[0])
                return Place(uid, f"{above}/{own}", identity[0] if identity else "")
    return None


def node_message(kill: Kill) -> str:
    """Return the kubelet's message of a SystemOOM event."""
    return f"System OOM encountered, victim process: {one_line(kill.process)}, pid: {kill.pid}"


def pod_message(kill: Kill, where: Place, container: str) -> str:
    """Return the message of a pod's OOMKilled event. `container`: its name; empty when it is not known."""
    owner = f" of container {container}" if container else ""
    text = (
        f"Kernel killed process {one_line(kill.process)}, pid: {kill.pid},{owner or ' of the pod'} for lack of memory. "
        f"The process was using {binary(kill.resident_bytes)}"
    )
    if kill.of_node:
        return f"{text}; the node had no memory left."
    whose = _owner_of_limit(kill.limited, where)
    if not whose or not 0 < kill.limit_bytes < NO_LIMIT:
        return f"{text}; a memory limit was reached."
    return f"{text}; {whose} used {binary(kill.usage_bytes)}, its memory limit is {binary(kill.limit_bytes)}."


def _owner_of_limit(limited: str, where: Place) -> str:
    if limited == where.cgroup:
        return "the pod"
    if limited.startswith(f"{where.cgroup}/"):
        return "the container"
    return f"the cgroup {one_line(limited)} above the pod" if limited else ""


def binary(number: int) -> str:
    """Return bytes as Kubernetes writes a quantity: `16Mi`, `26784Ki`."""
    for power, suffix in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if number and number % (1 << power) == 0:
            return f"{number >> power}{suffix}"
    return str(number)


@dataclass(frozen=True, slots=True)
class Position:
    """The place in the log up to which kills are reported."""

    boot: str
    sequence: int
    """The last record; numbers begin again with each boot."""


def position(saved: object, boot: str) -> Position | None:
    """Return the position in a checkpoint's data; None without one, and for that of another boot."""
    match saved:
        case {"boot": str(of), "sequence": int(sequence)} if of == boot and boot and sequence >= 0:
            return Position(of, sequence)
    return None


def is_due(kill: Kill, start: Position | None, *, caught_up: bool) -> bool:
    """Return True for a kill to report: it is later than `start`, the last reported one.

    Without `start`, which is so at the first start, kills from before this process are not reported. `caught_up`: the
    end of the log has been reached once, so later records are of this process's time.
    """
    if start is None:
        return caught_up
    return kill.sequence > start.sequence


def age_s(kill: Kill, now_us: int) -> float:
    """Return the age of a kill. Both times are of the kernel's monotonic clock, so a set clock does not matter."""
    return max(0.0, (now_us - kill.stamp_us) / 1e6)
