"""Which images may go, in which order, and how much must. Pure; every time is in Unix seconds.

Source: pkg/kubelet/images/image_gc_manager.go of Kubernetes 1.36 and
https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-image-lifecycle
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

LONG_AGO = 0.0
"""When an image was first seen that was there before anybody looked: old enough for any minimum age."""


@dataclass(frozen=True, slots=True)
class ImageView:
    """One image as the runtime lists it."""

    id: str
    names: frozenset[str]
    """Its ID, tags and digests: all that a container may call it by."""
    size_bytes: int
    pinned: bool = False
    runtime_handler: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What cannot be asked of anybody: when an image was first seen, and when last in use (LONG_AGO: never)."""

    first_detected: float
    last_used: float = LONG_AGO


@dataclass(frozen=True, slots=True)
class Candidate:
    """An image nobody uses and nobody pinned."""

    image: ImageView
    seen: Seen


@dataclass(frozen=True, slots=True)
class Limits:
    """When images go. Validated by `problem`."""

    high_percent: int
    low_percent: int
    min_age_s: float
    max_age_s: float = 0.0
    """0: none goes for its age."""

    def problem(self) -> str:
        """What is wrong with them in the kubelet's words; empty when nothing is."""
        for name, percent in (("HighThresholdPercent", self.high_percent), ("LowThresholdPercent", self.low_percent)):
            if not 0 <= percent <= 100:
                return f"invalid {name} {percent}, must be in range [0-100]"
        if self.low_percent > self.high_percent:
            low, high = self.low_percent, self.high_percent
            return f"LowThresholdPercent {low} can not be higher than HighThresholdPercent {high}"
        return ""

    @property
    def disabled(self) -> bool:
        """Whether nothing is ever to go by itself: a disk over 100 % full does not exist."""
        return self.high_percent == 100 and self.max_age_s == 0


def is_used(image: ImageView, in_use: frozenset[str]) -> bool:
    """Whether any container, running or not, names the image, by whatever name the runtime gives."""
    return not image.names.isdisjoint(in_use)


def observe(
    seen: Mapping[str, Seen], images: Iterable[ImageView], in_use: frozenset[str], detected: float, now: float
) -> dict[str, Seen]:
    """The records after a look at the runtime: new images are `detected` then, those in use were used `now`.

    Images that are gone are forgotten. Times after `now` are taken for now: the clock was set back.
    """
    result = {}
    for image in images:
        known = seen.get(image.id, Seen(detected))
        used = now if is_used(image, in_use) else min(known.last_used, now)
        result[image.id] = Seen(min(known.first_detected, now), used)
    return result


def candidates(
    seen: Mapping[str, Seen], images: Iterable[ImageView], in_use: frozenset[str], kept: frozenset[str]
) -> list[Candidate]:
    """Images that might go, least recently used first, then first detected; never one in use, pinned or `kept`."""
    free = [
        Candidate(image, seen[image.id])
        for image in images
        if not image.pinned and not is_used(image, in_use) and not is_used(image, kept)
    ]
    return sorted(free, key=lambda candidate: (candidate.seen.last_used, candidate.seen.first_detected))


def why_keep_all(keep_images: bool, foreign_pods: Collection[str]) -> str:
    """Why no image may go at all; empty when some may. `foreign_pods`: UIDs of pods that are not known to be ours."""
    if keep_images:
        return "--keep-images"
    if foreign_pods:
        named = ", ".join(repr(uid[:60]) for uid in sorted(foreign_pods)[:3])
        return f"{len(foreign_pods)} pod(s) of another agent use the container runtime, such as {named}"
    return ""


def too_old(candidate: Candidate, limits: Limits, began: float, now: float) -> bool:
    """Whether the image goes for its age alone.

    Not before observation itself is that old: until then an image may have been in use when nobody looked.
    """
    if limits.max_age_s <= 0 or now - began <= limits.max_age_s:
        return False
    return now - candidate.seen.last_used > limits.max_age_s


def old_enough(candidate: Candidate, limits: Limits, now: float) -> bool:
    """Whether the image may go for space: one just pulled is about to be used."""
    return now - candidate.seen.first_detected >= limits.min_age_s


def bytes_to_free(capacity: int, available: int, limits: Limits) -> int:
    """How much must go to be below the low threshold; 0 while usage is below the high one. `capacity` above 0."""
    available = min(available, capacity)
    if 100 - available * 100 // capacity < limits.high_percent:
        return 0
    return max(0, capacity * (100 - limits.low_percent) // 100 - available)


def not_enough_message(wanted: int, found: int) -> str:
    """The kubelet's message of a collection that could not do what it had to (FreeDiskSpaceFailed)."""
    return (
        "Failed to garbage collect required amount of images. "
        f"Attempted to free {wanted} bytes, but only found {found} bytes eligible to free."
    )
