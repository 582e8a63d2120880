"""Relieves a shortage: reclaims, looks again, and evicts for what is still short. The actor does the calls."""

from __future__ import annotations

from typing import Protocol

from actors.eviction.policy import Progress, Reclaim, reclaim_steps
from actors.eviction.thresholds import DiskLayout, Threshold


class Node(Protocol):
    """The effects."""

    @property
    def layout(self) -> DiskLayout:
        """Return where images and writable layers are."""

    async def observe(self) -> Progress:
        """Measure now and return the state after it. Raises ActorError."""

    async def reclaim(self, step: Reclaim) -> bool:
        """Remove unused containers or images; return True when something was removed."""

    async def pause(self) -> None:
        """Wait until the next look for the effect of a reclaim."""

    async def evict(self, threshold: Threshold) -> list[str]:
        """Evict the first pod in rank; return its UID, if any."""


LOOKS = 10
"""Looks for the effect of a reclaim, beside the first: containerd deletes files after its answer."""


async def relieve(node: Node, progress: Progress) -> list[str]:
    """Act on the first threshold of `progress`; return the UIDs of evicted pods. Raises ActorError.

    Figures from before a reclaim must not end a pod, so the threshold is chosen again after it.
    """
    steps = reclaim_steps(progress.acted_on[0].signal, node.layout)
    removed = [await node.reclaim(step) for step in steps]
    if steps:
        progress = await node.observe()
    for _ in range(LOOKS if any(removed) else 0):
        if not progress.acted_on:
            return []
        await node.pause()
        progress = await node.observe()
    return await node.evict(progress.acted_on[0]) if progress.acted_on else []
