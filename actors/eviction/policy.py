"""Decides which thresholds are met, which conditions hold, and what to reclaim before an eviction. Pure.

`ranking` orders the pods, `message` formats the texts. Source: pkg/kubelet/eviction/eviction_manager.go and helpers.go
of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from actors.eviction.thresholds import SIGNALS, Condition, DiskLayout, Threshold
from proto.node.stats import FsStats, NodeStats

ORDER: tuple[Condition, ...] = ("MemoryPressure", "DiskPressure", "PIDPressure")

HARD_GRACE_PERIOD_S = 1
"""Grace period for a hard threshold: the node itself is at stake."""

Reclaim = Literal["containers", "images"]


@dataclass(frozen=True, slots=True)
class Observation:
    """Available amount and capacity, in bytes, inodes or processes."""

    available: int
    capacity: int


def observations(node: NodeStats) -> dict[str, Observation]:
    """Return signal to observation, without signals that could not be measured (capacity 0)."""
    found = {
        "memory.available": Observation(node.memory_available_bytes, node.memory_capacity_bytes),
        **_file_system("nodefs", node.nodefs),
        **_file_system("imagefs", node.imagefs),
        **_file_system("containerfs", _containerfs(node)),
        "pid.available": Observation(node.pids_max - node.pids_running, node.pids_max),
    }
    return {signal: seen for signal, seen in found.items() if seen.capacity > 0}


def _file_system(name: str, fs: FsStats) -> dict[str, Observation]:
    return {
        f"{name}.available": Observation(fs.available_bytes, fs.capacity_bytes),
        # 0 inodes: a file system without a fixed number of them, such as btrfs
        f"{name}.inodesFree": Observation(fs.inodes_free, fs.inodes),
    }


def _containerfs(node: NodeStats) -> FsStats:
    return node.imagefs if node.containerfs is None else node.containerfs


def disk_layout(node: NodeStats) -> DiskLayout:
    """Return where images and writable layers are; `one disk` while the disk of images is unknown."""
    if node.imagefs.capacity_bytes == 0 or node.imagefs.device == node.nodefs.device:
        return "one disk"
    return "images apart" if node.containerfs is None else "split"


def is_met(threshold: Threshold, seen: Mapping[str, Observation], *, with_reclaim: bool = False) -> bool:
    """Return True when less than the threshold is available; False when its signal was not observed.

    `with_reclaim` adds the minimum reclaim to the threshold.
    """
    observed = seen.get(threshold.signal)
    if observed is None:
        return False
    more = threshold.reclaim(observed.capacity) if with_reclaim else 0
    return observed.available < threshold.quantity(observed.capacity) + more


def _in_order(thresholds: Iterable[Threshold]) -> list[Threshold]:
    """Sort by the order of action: memory first, and the hard one of two for a signal."""
    order = list(SIGNALS)
    return sorted(thresholds, key=lambda one: (order.index(one.signal), one.grace_s))


@dataclass(frozen=True, slots=True)
class Progress:
    """The state between two looks at the node."""

    first_met: Mapping[Threshold, float] = field(default_factory=dict)
    """Threshold to the time since which it has been met, in seconds of a monotonic clock."""
    acted_on: tuple[Threshold, ...] = ()
    """Thresholds met for their grace period. They end when the minimum reclaim is available, too."""

    def observe(self, thresholds: Iterable[Threshold], seen: Mapping[str, Observation], now: float) -> Progress:
        """Return the state after an observation at time `now`."""
        thresholds = tuple(thresholds)
        unresolved = {one for one in self.acted_on if is_met(one, seen, with_reclaim=True)}
        met = _in_order(one for one in thresholds if one in unresolved or is_met(one, seen))
        first_met = {one: self.first_met.get(one, now) for one in met}
        return Progress(first_met, tuple(one for one in met if now - first_met[one] >= one.grace_s))


def grace_period_s(threshold: Threshold, maximum_s: int, own_s: int | None) -> int:
    """Return the grace period of a pod evicted for the threshold. `maximum_s`: evictionMaxPodGracePeriod."""
    if not threshold.grace_s:
        return HARD_GRACE_PERIOD_S
    return maximum_s if own_s is None else min(maximum_s, own_s)


def last_observed(
    before: Mapping[Condition, float], met: Iterable[Threshold], transition_s: float, now: float
) -> dict[Condition, float]:
    """Return condition to the time it was last seen, for all conditions that hold. Times are monotonic seconds.

    A condition that is over holds for the transition period, so that a node at a threshold does not flap.
    """
    held = {condition: at for condition, at in before.items() if now - at < transition_s}
    return held | {SIGNALS[threshold.signal].condition: now for threshold in met}


def conditions(observed: Mapping[Condition, float]) -> tuple[Condition, ...]:
    """Return the conditions that hold, in the fixed ORDER."""
    return tuple(condition for condition in ORDER if condition in observed)


def reclaim_steps(signal: str, layout: DiskLayout) -> tuple[Reclaim, ...]:
    """Return the reclaim steps before an eviction, which free space on the signal's disk."""
    disk = signal.partition(".")[0]
    if disk not in ("nodefs", "imagefs", "containerfs"):
        return ()
    if layout == "split":
        return ("images",) if disk == "imagefs" else ("containers",)
    return () if layout == "images apart" and disk == "nodefs" else ("containers", "images")
