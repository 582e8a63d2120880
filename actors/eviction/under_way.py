"""Evictions under way: what the checkpoint keeps of them, and when the next look may evict again. Pure.

The memory and disk of an evicted pod are free only once it has ended and its volumes are removed. A look before that
evicts the next pod in vain. The kubelet waits twice: for the end of the processes (killPodNow of
pkg/kubelet/pod_workers.go), then for the clean-up (waitForPodsCleanup of pkg/kubelet/eviction/eviction_manager.go).
The wait for it outlives this process, and a pod_workers that ends before its answer.

A pod that did not end in time is evicted again only with a shorter grace period. The kubelet evicts it again and again
while it is the first in rank, and no other pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from actors.eviction.policy import ORDER
from proto.pods.pod_workers import PodWorkerStates
from proto.v1 import ObjectReference

MINIMUM_KILL_WAIT_S = 10
CLEANUP_S = 30.0
"""Longest wait for an evicted pod's clean-up, once the wait for its processes is over (podCleanupTimeout)."""
Grace = Annotated[int, msgspec.Meta(le=2**31 - 1)]
"""Seconds; evictionMaxPodGracePeriod is an int32."""

Stage = Literal["sync", "terminating", "terminated", "released", "gone", "unknown"]
"""`released`: it is terminated without volumes and cgroup. `gone`: no source has the pod, and nothing of it is left.
`unknown`: pod_workers cannot tell that yet."""


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that pod_workers was asked to evict, or is about to be asked."""

    uid: str
    until: float
    """When the present wait is over, in monotonic seconds of this boot."""
    signal: str
    """The signal of the metric `kubelet_evictions`."""
    involved: ObjectReference
    message: str
    """The message of its event."""
    annotations: dict[str, str] = {}
    """Of its event."""
    told: bool = False
    """Its event is recorded: pod_workers has answered, or the pod was seen to end."""
    grace_period_s: Grace = 0
    """Of the request."""
    killed: bool = False
    """The wait for its processes is over, and `until` is the end of the wait for its clean-up."""
    ending: bool = False
    """It was terminating already. So its stage does not tell whether pod_workers has taken the request."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint's data."""

    conditions: tuple[str, ...] = ()
    boot_id: str = ""
    """Of the victims' times."""
    victims: tuple[Victim, ...] = ()
    overdue: dict[str, Grace] = {}
    """UID to grace period of pods that pod_workers was told to evict, and that did not end in time."""


def kill_wait_s(grace_period_s: int) -> float:
    """Return the longest wait for the end of the processes of a pod that was evicted with this grace period."""
    return float(max(MINIMUM_KILL_WAIT_S, grace_period_s + grace_period_s // 2))


def parse(data: Any, boot_id: str, now: float) -> Saved:
    """Return the data of a checkpoint at monotonic time `now`, without pods of another boot.

    A list has conditions only: earlier versions wrote it. No wait is longer than that for a new victim. Raises
    msgspec.ValidationError.
    """
    if isinstance(data, list):
        return Saved(conditions=tuple(name for name in ORDER if name in data))
    saved = msgspec.convert({} if data is None else data, Saved)
    if not boot_id or saved.boot_id != boot_id:
        return Saved(conditions=saved.conditions, boot_id=saved.boot_id)
    return msgspec.structs.replace(saved, victims=tuple(_bounded(one, now) for one in saved.victims))


def _bounded(victim: Victim, now: float) -> Victim:
    longest_s = CLEANUP_S if victim.killed else kill_wait_s(victim.grace_period_s)
    return msgspec.structs.replace(victim, until=min(victim.until, now + longest_s))


def stages(uids: Iterable[str], workers: PodWorkerStates) -> dict[str, Stage]:
    """Return UID to stage. It is unknown while pod_workers has just started, and for a pod that gets a worker soon."""
    absent: Stage = "gone" if workers.sources_ready else "unknown"
    found: dict[str, Stage] = dict.fromkeys(workers.waiting, "unknown")
    found |= {one.uid: "released" if one.released else one.stage for one in workers.pods}
    return {uid: found.get(uid, absent) for uid in uids}


def has_begun(victim: Victim, stage: Stage) -> bool:
    """Return True when pod_workers has taken the eviction. A pod that is gone may have been deleted before."""
    return not victim.ending and stage in ("terminating", "terminated", "released")


def is_over(victim: Victim, now: Mapping[str, Stage], before: Mapping[str, Stage]) -> bool:
    """Return True when nothing is to be waited for: the pod is released, or it runs and was not evicted.

    `before`: the stages of the look before. One look may be earlier than the pod's worker, so two have to show that it
    runs. Then the request was lost, with pod_workers or before it was sent. A pod that was ending before a request
    without an answer may be asked to end once more.
    """
    stage = now.get(victim.uid, "unknown")
    if stage == "terminating" and victim.ending:
        return not victim.told
    return stage in ("released", "gone") or stage == before.get(victim.uid) == "sync"


def waited_for(victim: Victim, stage: Stage, now: float) -> Victim | None:
    """Return the victim with its wait from monotonic time `now` on; None when its time is over.

    The clean-up has its whole time after the wait for the processes, whether they have ended or not.
    """
    if not victim.killed and (stage == "terminated" or now >= victim.until):
        victim = msgspec.structs.replace(victim, killed=True, until=min(now, victim.until) + CLEANUP_S)
    return victim if now < victim.until else None


def still_overdue(overdue: Mapping[str, int], workers: PodWorkerStates) -> dict[str, int]:
    """Return `overdue` without pods that have ended. `workers`: all pods."""
    now = stages(overdue, workers)
    return {uid: grace_s for uid, grace_s in overdue.items() if now[uid] in ("terminating", "unknown")}


def left_s(victims: Iterable[Victim], now: float) -> float:
    """Return the seconds until the last of the present waits is over; 0 when all are."""
    return max((0.0, *(one.until - now for one in victims)))
