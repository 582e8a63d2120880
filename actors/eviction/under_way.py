"""Evictions under way: what the checkpoint keeps of them, and when the next look may evict again. Pure.

The memory and disk of an evicted pod are free only once it has ended and its volumes are removed. A look before that
evicts the next pod in vain.
The wait for it outlives this process, and a pod_workers that ends before its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from actors.eviction.policy import ORDER
from proto.pods.pod_workers import PodWorkerStates
from proto.v1 import ObjectReference

CLEANUP_S = 30.0
"""Longest wait for an evicted pod's clean-up before the next decision (the kubelet's podCleanupTimeout)."""

Stage = Literal["sync", "terminating", "terminated", "released", "gone", "unknown"]
"""`released`: it is terminated without volumes and cgroup. `gone`: no source has the pod, and nothing of it is left.
`unknown`: pod_workers cannot tell that yet."""


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that pod_workers was asked to evict, or is about to be asked."""

    uid: str
    until: float
    """When the wait for its end is over, in monotonic seconds of this boot."""
    signal: str
    """The signal of the metric `kubelet_evictions`."""
    involved: ObjectReference
    message: str
    """The message of its event."""
    annotations: dict[str, str] = {}
    """Of its event."""
    told: bool = False
    """Its event is recorded: pod_workers has answered, or the pod was seen to end."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint's data."""

    conditions: tuple[str, ...] = ()
    boot_id: str = ""
    """Of the victims' times."""
    victims: tuple[Victim, ...] = ()


def parse(data: Any, boot_id: str, now: float) -> Saved:
    """Return the data of a checkpoint at monotonic time `now`, without victims of another boot.

    A list has conditions only: earlier versions wrote it. No victim is waited for longer than a new one. Raises
    msgspec.ValidationError.
    """
    if isinstance(data, list):
        return Saved(conditions=tuple(name for name in ORDER if name in data))
    saved = msgspec.convert({} if data is None else data, Saved)
    known = saved.victims if saved.boot_id == boot_id and boot_id else ()
    victims = (msgspec.structs.replace(one, until=min(one.until, now + CLEANUP_S)) for one in known)
    return msgspec.structs.replace(saved, victims=tuple(victims))


def stages(uids: Iterable[str], workers: PodWorkerStates) -> dict[str, Stage]:
    """Return UID to stage. A pod_workers that has just started does not know every pod yet."""
    absent: Stage = "gone" if workers.sources_ready else "unknown"
    found: dict[str, Stage] = {one.uid: "released" if one.released else one.stage for one in workers.pods}
    return {uid: found.get(uid, absent) for uid in uids}


def ends(stage: Stage) -> bool:
    """Return True when pod_workers has taken the eviction. A pod that is gone may have been deleted before."""
    return stage in ("terminating", "terminated", "released")


def is_over(uid: str, now: Mapping[str, Stage], before: Mapping[str, Stage]) -> bool:
    """Return True when nothing is to be waited for: the pod is released, or it runs and was not evicted.

    `before`: the stages of the look before. One look may be earlier than the pod's worker, so two have to show that it
    runs. Then the request was lost, with pod_workers or before it was sent.
    """
    stage = now.get(uid, "unknown")
    return stage in ("released", "gone") or stage == before.get(uid) == "sync"


def left_s(victims: Iterable[Victim], now: float) -> float:
    """Return the seconds until the last deadline; 0 when all are over."""
    return max((0.0, *(one.until - now for one in victims)))
