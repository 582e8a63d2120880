"""Decides which unused images to remove, in which order, and how many bytes. Pure; times are Unix seconds.

Source: pkg/kubelet/images/image_gc_manager.go of Kubernetes 1.36 and
https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-image-lifecycle
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from proto.common import rfc3339
from proto.common.safe_text import one_line

REMOVED = "ImageRemoved"
"""Reason of the node's event for each removed image."""
MOST_NAME = 300
"""Characters of an image's name in a message."""
MOST_OBJECT_NAME = 200
_NOT_IN_NAMES = re.compile("[^a-z0-9]")
LONG_AGO = -1e12
"""First sight of an image that was there before the first look: old enough for any minimum age.

Before each time that a clock shows: near 1970, an image has been used before 1970. JSON has no infinite number.
"""
LONG_AGO_BEFORE = 0.0
"""The same in files of earlier revisions."""


@dataclass(frozen=True, slots=True)
class ImageView:
    """One image of the runtime's list."""

    id: str
    names: frozenset[str]
    """Its ID, tags and digests: the names that a container may use."""
    size_bytes: int
    pinned: bool = False
    runtime_handler: str = ""
    local: bool = False
    """It has no digest of a registry: it was imported or built here, and no pull brings it back."""
    by_handler: bool = False
    """The feature gate RuntimeClassInImageCriApi: entries of one ID with other runtime handlers are other images."""

    @property
    def key(self) -> str:
        """Its identity: the ID; with the gate also its runtime handler, if the runtime tells one."""
        return f"{self.id},{self.runtime_handler}" if self.by_handler and self.runtime_handler else self.id


@dataclass(frozen=True, slots=True)
class Seen:
    """Times of an image's first sight and last use (LONG_AGO: never). No peer can tell them, so they are saved."""

    first_detected: float
    last_used: float = LONG_AGO


@dataclass(frozen=True, slots=True)
class Protection:
    """The images that stay although no container uses them. Ours; the kubelet protects pinned images only."""

    patterns: tuple[str, ...] = ()
    """Names with `*` for any characters (--protect-images)."""
    local: bool = True
    """Images without a digest of a registry stay."""

    def covers(self, image: ImageView) -> bool:
        """Return True when the image stays."""
        named = any(fnmatchcase(name, pattern) for name in image.names for pattern in self.patterns)
        return named or (self.local and image.local)


NO_PROTECTION = Protection(local=False)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An image that is neither in use, pinned nor protected."""

    image: ImageView
    seen: Seen


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of disk usage and age. `problem` validates them."""

    high_percent: int
    low_percent: int
    min_age_s: float
    max_age_s: float = 0.0
    """0: no removal by age."""

    def problem(self) -> str:
        """Return the kubelet's error message for invalid limits; empty for valid ones."""
        for name, percent in (("HighThresholdPercent", self.high_percent), ("LowThresholdPercent", self.low_percent)):
            if not 0 <= percent <= 100:
                return f"invalid {name} {percent}, must be in range [0-100]"
        if self.low_percent > self.high_percent:
            low, high = self.low_percent, self.high_percent
            return f"LowThresholdPercent {low} can not be higher than HighThresholdPercent {high}"
        return ""

    @property
    def disabled(self) -> bool:
        """Return True when no image is ever removed by itself: no disk is more than 100 % full."""
        return self.high_percent == 100 and self.max_age_s == 0


InUse = frozenset[str | tuple[str, str]]
"""Names by which containers, running or not, use images. A name with a runtime handler is of its image alone."""


def is_used(image: ImageView, in_use: InUse) -> bool:
    """Return True when a container, running or not, uses one of the image's names."""
    return not image.names.isdisjoint(in_use) or any((name, image.runtime_handler) in in_use for name in image.names)


def observe(
    seen: Mapping[str, Seen], images: Iterable[ImageView], in_use: InUse, detected: float, now: float
) -> dict[str, Seen]:
    """Return the records after a look at the runtime: new images have `detected`, used ones were used `now`.

    Removed images are dropped. Times after `now` become `now`, because the clock was set back.
    """
    result = {}
    for image in images:
        known = seen.get(image.key, Seen(detected))
        used = now if is_used(image, in_use) else min(known.last_used, now)
        result[image.key] = Seen(min(known.first_detected, now), used)
    return result


def restored(times: tuple[float, float]) -> Seen:
    """Return the times of a file."""
    first_detected, last_used = (LONG_AGO if time == LONG_AGO_BEFORE else time for time in times)
    return Seen(first_detected, last_used)


def shifted(seen: Mapping[str, Seen], by_s: float) -> dict[str, Seen]:
    """Return the records after a step of the clock by so many seconds: each image is as old as before the step."""

    def moved(time: float) -> float:
        return time + by_s if time > LONG_AGO else time

    return {image: Seen(moved(one.first_detected), moved(one.last_used)) for image, one in seen.items()}


def why_stays(image: ImageView, in_use: InUse, kept: frozenset[str], protection: Protection = NO_PROTECTION) -> str:
    """Return the reason why an image is no candidate; empty for a candidate."""
    if is_used(image, in_use):
        return "in use"
    if image.pinned:
        return "pinned"
    if is_used(image, kept):
        return "the image of sandboxes"
    return "protected" if protection.covers(image) else ""


def candidates(
    seen: Mapping[str, Seen],
    images: Iterable[ImageView],
    in_use: InUse,
    kept: frozenset[str],
    protection: Protection = NO_PROTECTION,
) -> list[Candidate]:
    """Return images not in use, pinned, `kept` or protected: least recently used first, then first detected."""
    free = [Candidate(image, seen[image.key]) for image in images if not why_stays(image, in_use, kept, protection)]
    return sorted(free, key=lambda candidate: (candidate.seen.last_used, candidate.seen.first_detected))


def why_keep_all(keep_images: bool, foreign_pods: Collection[str]) -> str:
    """Return the reason to keep all images; empty when some may go. `foreign_pods`: UIDs without a mark of ours."""
    if keep_images:
        return "--keep-images"
    if foreign_pods:
        named = ", ".join(repr(uid[:60]) for uid in sorted(foreign_pods)[:3])
        return f"{len(foreign_pods)} pod(s) of another agent use the container runtime, such as {named}"
    return ""


def too_old(candidate: Candidate, limits: Limits, began: float, now: float) -> bool:
    """Return True when the image goes for its age alone.

    False while observation is younger than the maximum age: the image may have been in use before it `began`.
    """
    if limits.max_age_s <= 0 or now - began <= limits.max_age_s:
        return False
    return now - candidate.seen.last_used > limits.max_age_s


def old_enough(candidate: Candidate, limits: Limits, now: float) -> bool:
    """Return True when the image may go for space. A container may be about to use one just pulled."""
    return now - candidate.seen.first_detected >= limits.min_age_s


@dataclass(frozen=True, slots=True)
class Victim:
    """An image to remove, and the rule by which it goes."""

    candidate: Candidate
    rule: Literal["age", "space"]

    @property
    def image(self) -> ImageView:
        """The image."""
        return self.candidate.image

    def unused_s(self, now: float) -> float:
        """Return the time since its last use, or since its first sight when no use of it was seen.

        An image that was always there without use is as old as Unix time.
        """
        since = max(self.candidate.seen.last_used, self.candidate.seen.first_detected)
        return now - since if since > LONG_AGO else now


def victims(unused: Iterable[Candidate], limits: Limits, began: float, now: float, *, aged: bool) -> list[Victim]:
    """Return the images that may go, in their order: with `aged` those over the maximum age, then those for space."""
    unused = list(unused)
    old = [one for one in unused if aged and too_old(one, limits, began, now)]
    gone = {one.image.key for one in old}
    space = [one for one in unused if one.image.key not in gone and old_enough(one, limits, now)]
    return [*(Victim(one, "age") for one in old), *(Victim(one, "space") for one in space)]


def expected(found: Iterable[Victim], wanted: int | None) -> list[Victim]:
    """Return the victims that go when `wanted` bytes are to be freed for space (None: all) and sizes are true.

    Images share layers, so their removal may free less than their sizes. Then more of the list goes.
    """
    taken, freed = [], 0
    for one in found:
        if one.rule == "age":
            taken.append(one)
        elif wanted is None or freed < wanted:
            taken.append(one)
            freed += one.image.size_bytes
    return taken


def bytes_to_free(capacity: int, available: int, limits: Limits) -> int:
    """Return the bytes to free for the low threshold; 0 while usage is below the high one. `capacity` is above 0."""
    available = min(available, capacity)
    if 100 - available * 100 // capacity < limits.high_percent:
        return 0
    return max(0, capacity * (100 - limits.low_percent) // 100 - available)


def verdicts(
    images: Iterable[ImageView], unused: Iterable[Candidate], found: Iterable[Victim], stays: Callable[[ImageView], str]
) -> dict[str, str]:
    """Return key to the reason to go or to stay. `stays` is `why_stays`, or says why all images stay."""
    rules = {one.image.key: one.rule for one in found}
    times = {one.image.key: one.seen.last_used for one in unused}

    def verdict(image: ImageView) -> str:
        if image.key not in times:
            return stays(image)
        if image.key not in rules:
            return "below the minimum age"
        last = times[image.key]
        unused_since = f"last used at {rfc3339.seconds(last)}" if last > LONG_AGO else "never seen in use"
        return f"over the maximum age, {unused_since}" if rules[image.key] == "age" else unused_since

    return {image.key: verdict(image) for image in images}


def shown_name(image: ImageView) -> str:
    """Return a name of the image for people; its ID when it has none."""
    return one_line(min(image.names - {image.id}, default=image.id)[:MOST_NAME])


def object_name(image: ImageView) -> str:
    """Return the name of the object of its events, in characters that an API server takes."""
    return _NOT_IN_NAMES.sub("-", image.id.lower())[:MOST_OBJECT_NAME].strip("-") or "unnamed"


def removal_message(victim: Victim, now: float) -> str:
    """Return the message of a removal's event: image, rule, age and bytes."""
    named = shown_name(victim.image)
    rule = "over the maximum age" if victim.rule == "age" else "to free disk space"
    age_s = int(victim.unused_s(now))
    since = f"unused for {age_s} s" if victim.candidate.seen.first_detected > LONG_AGO else "never seen in use"
    if victim.candidate.seen.last_used > LONG_AGO:
        since = f"last used {age_s} s ago"
    return f"Removed image {named} of {victim.image.size_bytes} bytes: {rule}, {since}"


def not_enough_message(wanted: int, found: int) -> str:
    """Return the kubelet's message for a collection that freed too little (FreeDiskSpaceFailed)."""
    return (
        "Failed to garbage collect required amount of images. "
        f"Attempted to free {wanted} bytes, but only found {found} bytes eligible to free."
    )
