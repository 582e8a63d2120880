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

    def amount_of(self, signal: str) -> int:
        """Return the amount of an observed signal at the last look."""

    async def pause(self) -> None:
        """Wait until the next look for the effect of a reclaim."""

    async def evict(self, threshold: Threshold) -> list[str]:
        """Evict the first pod in rank; return its UID, if any."""


LOOKS = 10
"""Most looks for the effect of a reclaim, beside the first: containerd deletes files after its answer."""
QUIET_LOOKS = 2
"""Looks in a row without a gain, after which no more is expected, and a pod goes.

The kubelet looks once. A deletion that still frees space is worth its time, since an eviction cannot be taken back.
Without a gain the wait ends: a file system that frees at its next commit, such as btrfs, may take 30 s.
"""


async def relieve(node: Node, progress: Progress) -> list[str]:
    """Act on the first threshold of `progress`; return the UIDs of evicted pods. Raises ActorError.

    Figures from before a reclaim must not end a pod, so the threshold is chosen again after it.
    """
    steps = reclaim_steps(progress.acted_on[0].signal, node.layout)
    removed = [await node.reclaim(step) for step in steps]
    if steps:
        progress = await node.observe()
    if any(removed):
        progress = await _await_effect(node, progress)
    return await node.evict(progress.acted_on[0]) if progress.acted_on else []


async def _await_effect(node: Node, progress: Progress) -> Progress:
    """Look again while more becomes available of the signal that is acted on; return the last look's state."""
    most: dict[str, int] = {}
    quiet = -1  # the first amount has none to compare with
    for _ in range(LOOKS):
        if not progress.acted_on:
            break
        signal = progress.acted_on[0].signal
        amount = node.amount_of(signal)
        before = most.get(signal, amount)
        most[signal] = max(before, amount)
        quiet = 0 if amount > before else quiet + 1
        if quiet == QUIET_LOOKS:
            break
        await node.pause()
        progress = await node.observe()
    return progress
