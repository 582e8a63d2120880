"""The order and grace periods in which pods end at a machine's shutdown. Pure.

Source: KEP-2000, KEP-2712 and pkg/kubelet/nodeshutdown of Kubernetes 1.36.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from actors._host.node.critical import is_static
from proto.agent.settings import ShutdownGrace
from proto.pods.pod_workers import PodWorkerState, PodWorkerStates
from proto.v1 import Pod

DEFAULT_GRACE_S = 30

Stage = Literal["sync", "terminating", "terminated"]


class PodEnd(NamedTuple):
    """One pod to be ended."""

    uid: str
    name: str
    grace_s: int
    static: bool


class Group(NamedTuple):
    """Pods that are ended together; `grace_s` is the longest wait for them."""

    priority: int
    grace_s: int
    pods: tuple[PodEnd, ...]


def total_s(graces: Iterable[ShutdownGrace]) -> int:
    """The delay of the machine's shutdown that logind must allow, in seconds."""
    return sum(one.grace_s for one in graces)


def groups(graces: Iterable[ShutdownGrace], pods: Iterable[PodWorkerState]) -> list[Group]:
    """The pods that still run, in groups by priority, lowest first; groups without pods are left out.

    A pod is in the group of the highest entry that is not above its priority; one below all is in the lowest.
    """
    ordered = sorted(graces, key=lambda one: one.priority)
    members: list[list[PodEnd]] = [[] for _ in ordered]
    for row in pods:
        if row.pod is None or row.stage == "terminated" or not ordered:
            continue
        priority = row.pod.spec.priority or 0
        index = max((at for at, one in enumerate(ordered) if one.priority <= priority), default=0)
        grace_s = min(ordered[index].grace_s, _own_grace_s(row.pod))
        members[index].append(PodEnd(row.uid, f"{row.namespace}/{row.name}", grace_s, is_static(row.pod)))
    return [
        Group(one.priority, one.grace_s, tuple(found)) for one, found in zip(ordered, members, strict=True) if found
    ]


def is_settled(workers: PodWorkerStates) -> bool:
    """Return True when pod_workers knows all pods, which takes a moment after its start."""
    return workers.sources_ready and not workers.waiting


def lowest_grace_s(graces: Iterable[ShutdownGrace]) -> float:
    """The grace period of the lowest priority, which ends first; 0 without entries."""
    lowest = min(graces, key=lambda one: one.priority, default=None)
    return lowest.grace_s if lowest is not None else 0.0


def unreleased(stages: Mapping[str, Stage], workers: PodWorkerStates) -> dict[str, Stage]:
    """UID to stage of those of `stages` that run, or have ended and keep volumes or a cgroup.

    A pod keeps its stage of before while pod_workers has just started, and until it has its worker.
    """
    unknown = stages.keys() & set(workers.waiting) if workers.sources_ready else stages.keys()
    known = {row.uid: row for row in workers.pods}
    kept = {uid: stages[uid] for uid in stages if uid in unknown and uid not in known}
    return kept | {uid: row.stage for uid, row in known.items() if uid in stages and not row.released}


def running(stages: Mapping[str, Stage]) -> set[str]:
    """UIDs of the pods that have not ended."""
    return {uid for uid, stage in stages.items() if stage != "terminated"}


def rest_s(grace_s: float, began: float, now: float) -> int:
    """Whole seconds that are left of a grace period, at least 0."""
    return max(0, math.ceil(began + grace_s - now))


def _own_grace_s(pod: Pod) -> int:
    own = pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE_S if own is None else own


def logind_drop_in(delay_s: float) -> str:
    """The logind configuration that allows the delay."""
    return f"# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={delay_s:.0f}\n"
