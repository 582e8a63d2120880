"""Dedicated jobs that wait for a helper: which one begins next. Pure.

A job may take minutes, so the number of jobs under way is bounded. Owners share the bounds: an owner is what may keep a
job waiting, a driver, a server or a disk. No owner takes all, so that the others' jobs go on while it hangs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from actors.volume.steps import csi, volumes
from actors.volume.steps.codec import Step

EACH = 16
"""Most jobs of an owner under way. A driver has fewer calls at once (`drivers/locks.py`)."""
SHARED = 32
"""With so many jobs under way, only an owner without one begins another."""
MOST = 64
"""Most jobs under way."""
SHOWN = 20
"""Most owners in a description."""
T = TypeVar("T")


def owner_of(steps: tuple[Step, ...]) -> str:
    """The owner of a job with these steps."""
    for step in steps:
        match step:
            case csi.CsiMount() | csi.CsiUnmount() | csi.CsiMeasure():
                kind, name = "driver", step.volume.driver
            case csi.CsiUnstage():
                kind, name = "driver", step.staged.driver
            case csi.Describe():
                kind, name = "driver", step.driver.name
            case csi.Register():
                kind, name = "plugin", step.socket
            case volumes.Mount():
                kind, name = "server", step.source.partition(":/")[0]
            case volumes.Local() | volumes.Block():
                kind, name = "disk", step.path
            case _:
                continue
        return f"{kind} {name}"
    return "usage"


class DedicatedJobs(Generic[T]):
    """Jobs by owner: queued, and under way."""

    def __init__(self) -> None:
        self._queued: dict[str, deque[T]] = {}
        """The first owner has waited longest since its last job began."""
        self._under_way: Counter[str] = Counter()

    def add(self, owner: str, job: T) -> None:
        """Queue a job."""
        self._queued.setdefault(owner, deque()).append(job)

    def take(self) -> tuple[str, T] | None:
        """Begin a job: the oldest one of the owner with the fewest under way. None: no job may begin now."""
        owner = min(self._queued, key=self._under_way.__getitem__, default=None)
        if owner is None or not self._may_begin(owner):
            return None
        jobs = self._queued.pop(owner)
        job = jobs.popleft()
        if jobs:
            self._queued[owner] = jobs
        self._under_way[owner] += 1
        return owner, job

    def _may_begin(self, owner: str) -> bool:
        own, total = self._under_way[owner], self._under_way.total()
        return own < EACH and total < (SHARED if own else MOST)

    def ended(self, owner: str) -> None:
        """A job of the owner is no longer under way."""
        self._under_way[owner] -= 1
        if self._under_way[owner] <= 0:
            del self._under_way[owner]

    def withdraw(self, wanted: Callable[[T], bool]) -> list[T]:
        """Remove the queued jobs that are not `wanted`. Returns them."""
        removed: list[T] = []
        for owner, jobs in list(self._queued.items()):
            removed += [job for job in jobs if not wanted(job)]
            kept = deque(job for job in jobs if wanted(job))
            if kept:
                self._queued[owner] = kept
            else:
                del self._queued[owner]
        return removed

    def describe(self) -> dict[str, Any]:
        """Numbers of jobs, and those of the owners with the most."""
        numbers = {
            owner: {"busy": self._under_way[owner], "queued": len(self._queued.get(owner, ()))}
            for owner in {**self._queued, **self._under_way}
        }
        most = sorted(numbers, key=lambda owner: (-numbers[owner]["queued"], -numbers[owner]["busy"], owner))
        return {
            "busy": self._under_way.total(),
            "queued": sum(map(len, self._queued.values())),
            "owners": {owner: numbers[owner] for owner in most[:SHOWN]},
        }
