"""One collection of images, and its plan: what to look at, in which order to remove, when to stop.

The actor does the calls. Plan and collection take the same decisions; `Basis` has the facts behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from actors._host.node.plans import Basis
from actors.image_gc import policy
from actors.image_gc.policy import Candidate, ImageView, Limits, Victim
from proto.node.stats import FsStats
from proto.wire.errors import Refused

TO_FREE, FREED, COUNT = "bytes to free", "bytes freed", "images that have to go for them"
"""Figures of a plan: it takes images for as large as their sizes, but images share layers."""


@dataclass(frozen=True, slots=True)
class Look:
    """The runtime's images at one time."""

    time: float
    images: Sequence[ImageView]
    unused: Sequence[Candidate]
    stays: dict[str, str]
    """Key to the reason why an image is not in `unused`."""


class Node(Protocol):
    """The effects of a collection."""

    async def look(self) -> Look:
        """List images and containers."""

    async def imagefs(self) -> FsStats:
        """Measure the image file system now."""

    async def remove(self, victim: Victim) -> str:
        """Remove an image if it is still unused; return the reason why not, empty when it is gone."""


@dataclass
class Tally:
    """Result of a collection, updated while it runs."""

    freed: int = 0
    removed: tuple[str, ...] = ()
    """Keys of images."""
    failed: dict[str, str] = field(default_factory=dict)
    """Key to the reason, of images that did not go."""
    found: Sequence[Victim] = ()
    wanted: int = 0

    def left(self, look: Look) -> tuple[str, ...]:
        """Return the IDs of the images that stayed."""
        return tuple(dict.fromkeys(image.id for image in look.images if image.key not in self.removed))

    def basis(self, look: Look) -> Basis:
        """Return the facts, to compare them with a plan's."""
        return _basis(look, self.found, self.removed, (self.wanted, self.freed), self.failed)


def _basis(
    look: Look, found: Sequence[Victim], going: tuple[str, ...], amounts: tuple[int, int], failed: dict[str, str]
) -> Basis:
    space = {one.image.key for one in found if one.rule == "space"}
    figures = {TO_FREE: amounts[0], FREED: amounts[1], COUNT: len(space.intersection(going))}
    verdicts = policy.verdicts(look.images, look.unused, found, lambda image: look.stays.get(image.key, ""))
    names = {image.key: policy.shown_name(image) for image in look.images}
    return Basis(going, {**verdicts, **failed}, figures, names)


def _capacity(imagefs: FsStats) -> int:
    if imagefs.capacity_bytes == 0:
        raise Refused("InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
    return imagefs.capacity_bytes


async def plan(node: Node, limits: Limits, began: float, available: int | None) -> tuple[Look, list[Victim], Basis]:
    """Return the images that a collection by the thresholds would remove if sizes were true. Raises Refused.

    `available`: suppose so many free bytes. `began`: since when images are observed.
    """
    look, imagefs = await node.look(), await node.imagefs()
    capacity, supposed = _capacity(imagefs), imagefs.available_bytes if available is None else available
    found = policy.victims(look.unused, limits, began, look.time, aged=True)
    # An image that goes by age frees space before the threshold is looked at.
    freed = sum(one.image.size_bytes for one in found if one.rule == "age")
    wanted = policy.bytes_to_free(capacity, supposed + freed, limits)
    going = policy.expected(found, wanted)
    space = sum(one.image.size_bytes for one in going if one.rule == "space")
    return look, going, _basis(look, found, tuple(one.image.key for one in going), (wanted, space), {})


async def by_thresholds(node: Node, look: Look, limits: Limits, began: float, tally: Tally) -> None:
    """Remove images over the maximum age, then the least recently used ones for space. Raises Refused.

    FreeDiskSpaceFailed: too few images may go.
    """
    tally.found = policy.victims(look.unused, limits, began, look.time, aged=True)
    for victim in tally.found:
        if victim.rule == "age":
            await _remove(node, victim, tally)
    imagefs = await node.imagefs()
    before = imagefs.available_bytes
    tally.wanted = policy.bytes_to_free(_capacity(imagefs), before, limits)
    for victim in tally.found:
        if tally.freed >= tally.wanted:
            return
        # Measured after each removal, because images share layers.
        if victim.rule == "space" and await _remove(node, victim, tally):
            tally.freed = max(0, (await node.imagefs()).available_bytes - before)
    if tally.freed < tally.wanted:
        raise Refused("FreeDiskSpaceFailed", policy.not_enough_message(tally.wanted, tally.freed))


async def all_unused(node: Node, look: Look, limits: Limits, began: float, tally: Tally) -> None:
    """Remove every unused image that is old enough."""
    tally.found = policy.victims(look.unused, limits, began, look.time, aged=False)
    if tally.found:
        before = (await node.imagefs()).available_bytes
        for victim in tally.found:
            await _remove(node, victim, tally)
        tally.freed = max(0, (await node.imagefs()).available_bytes - before)


async def _remove(node: Node, victim: Victim, tally: Tally) -> bool:
    if problem := await node.remove(victim):
        tally.failed[victim.image.key] = problem
        return False
    tally.removed += (victim.image.key,)
    return True
