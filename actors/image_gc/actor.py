"""The image_gc actor: observes the use of images, and removes unused ones when the disk fills or they age.

While the runtime also runs another agent's pods, no image is removed: their use is not known here.

It runs one collection at a time. A checkpoint keeps the times of images' first sight and last use across restarts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actors._base import Actor, handles
from actors._base.messaging.tasks import Semaphore
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from actors._events.recorder import Recorder
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors._host.files.own_pods import OwnPods
from actors._metrics import kubelet as metrics
from actors.image_gc import policy
from actors.image_gc.listing import image_view, images_in_use, pods_in, sandbox_image
from actors.image_gc.policy import Candidate, ImageView, Limits, Protection, Seen, Victim
from proto.common.until import Until
from proto.cri import api_pb2 as pb
from proto.node.eviction import PlannedVictim
from proto.node.image_gc import Collected, CollectGarbage, DeleteUnusedImages, Plan, PlanCollection
from proto.node.image_pull import ImagesPresent
from proto.node.stats import FsStats, GetNodeStats
from proto.wire.errors import ActorError, Refused

log = logging.getLogger(__name__)

CHECKPOINT_VERSION = 1
FAILED = "ImageGCFailed"
STATS_S = 10.0
DISK_S = 10.0


@dataclass
class Tally:
    """Result of a collection, updated while it runs."""

    freed: int = 0
    removed: tuple[str, ...] = ()


class ImageGc(Actor):
    """State: each image's first sight and last use, and the time since which images are observed."""

    name = "image_gc"
    asks = frozenset({"stats", "pleg"})

    async def rebuild(self) -> None:
        """Load the checkpoint. The runtime is asked later. Raises ValueError for invalid thresholds."""
        settings = self.settings
        self._limits = Limits(
            settings.image_gc_high_threshold_percent,
            settings.image_gc_low_threshold_percent,
            settings.image_minimum_gc_age_s,
            settings.image_maximum_gc_age_s,
        )
        if problem := self._limits.problem():
            raise ValueError(f"cannot collect images: {problem}; correct imageGC*ThresholdPercent")
        self._protection = Protection(settings.protected_images, local=not settings.collect_local_images)
        endpoint = settings.container_runtime_endpoint
        self._cri = RelayedCri(self.peer("pleg")) if endpoint else None
        self._own = OwnPods(settings.root_dir, take_over=settings.take_over)
        self._keeping = ""
        self._gate = Semaphore(1)
        self._events = Recorder(self.peer("events"))
        self._failed_before = False
        self._kept: frozenset[str] | None = None
        path = f"{paths.checkpoints_dir(settings.root_dir)}/{self.name}.json"
        loss = "after a restart all images count as unused"
        self._file = CheckpointFile(self.blocking, path, CHECKPOINT_VERSION, loss, deadline_s=DISK_S, sync=True)
        self._seen: dict[str, Seen] = {}
        self._began = time.time()
        self._initialized = False
        self._last_error = ""
        self._collected = Tally()
        self._load()

    def _load(self) -> None:
        data = self._file.load()
        if isinstance(data, dict):
            self._began = min(self._began, data["began"])
            self._seen = {image: Seen(*times) for image, times in data["images"].items()}
            # An image that is not in the checkpoint is new.
            self._initialized = True

    def on_ready(self) -> None:
        """Look once now, then collect every period."""
        if self._cri is not None:
            self.every(Until(self.settings.image_gc_period_s), self._tick, "collect")

    def describe(self) -> dict[str, Any]:
        """Return the number of images and the result of the last collection."""
        return {
            "images": len(self._seen),
            "freed_bytes": self._collected.freed,
            "removed": len(self._collected.removed),
            "last_error": self._last_error,
            "keeps_all": self._keeping,
        }

    @handles(CollectGarbage)
    async def collect_garbage(self, _: CollectGarbage) -> Collected:
        """Collect by the thresholds. Raises Refused.

        FreeDiskSpaceFailed: too few images may go. ImageGCFailed: the runtime or the stats actor does not answer.
        """
        return await self._guarded(by_thresholds=True)

    @handles(DeleteUnusedImages)
    async def delete_unused_images(self, _: DeleteUnusedImages) -> Collected:
        """Remove all unused images. Raises Refused ImageGCFailed when the runtime does not answer."""
        return await self._guarded(by_thresholds=False)

    @handles(PlanCollection)
    async def plan_collection(self, request: PlanCollection) -> Plan:
        """Return what a collection by the thresholds would remove. Raises Refused as `collect_garbage`."""
        try:
            async with self._gate:
                return await self._plan(self._runtime(), request.available_bytes)
        except (CriError, ActorError) as error:
            if isinstance(error, Refused):
                raise
            raise Refused(FAILED, str(error)) from error

    async def _plan(self, cri: RelayedCri, available: int | None) -> Plan:
        _, unused = await self._unused(cri)
        imagefs, now = await self._imagefs(), time.time()
        if imagefs.capacity_bytes == 0:
            raise Refused("InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
        supposed = imagefs.available_bytes if available is None else available
        found = policy.victims(unused, self._limits, self._began, now, aged=True)
        # An image that goes by age frees space before the threshold is looked at.
        freed = sum(one.image.size_bytes for one in found if one.rule == "age")
        wanted = policy.bytes_to_free(imagefs.capacity_bytes, supposed + freed, self._limits)
        notes = (self._keeping,) if self._keeping else ()
        return Plan(victims=tuple(_planned(one, now) for one in policy.expected(found, wanted)), notes=notes)

    async def _tick(self) -> None:
        if not self._initialized or self._limits.disabled:
            await self._look_only()
            return
        try:
            await self._guarded(by_thresholds=True)
        except Refused as refusal:
            log.warning("cannot collect images: %s: %s", refusal.reason, refusal.message)
            if refusal.reason != FAILED:
                self._events.node("Warning", refusal.reason, refusal.message)
            if self._failed_before:  # as in the kubelet: the first failure may be due to missing stats
                self._events.node("Warning", FAILED, refusal.message)
            self._failed_before = True
        else:
            self._failed_before = False

    async def _look_only(self) -> None:
        try:
            async with self._gate:
                await self._list_images(self._runtime())
        except (CriError, Refused) as error:
            self._last_error = str(error)
            log.warning("cannot list images and containers: %s", error)

    async def _guarded(self, *, by_thresholds: bool) -> Collected:
        """Run one collection alone. Raises Refused for all expected errors."""
        try:
            async with self._gate:
                tally = await self._collect(self._runtime(), by_thresholds=by_thresholds)
        except Refused as refusal:
            self._last_error = refusal.message
            raise
        except (CriError, ActorError) as error:
            self._last_error = str(error)
            raise Refused(FAILED, str(error)) from error
        self._last_error = ""
        self._collected = tally
        return Collected(freed_bytes=tally.freed, removed=tally.removed)

    def _runtime(self) -> RelayedCri:
        if self._cri is None:
            raise Refused(FAILED, "no container runtime is configured", retry=False)
        return self._cri

    # Looking

    async def _list_images(self, cri: RelayedCri) -> tuple[list[ImageView], frozenset[str]]:
        """Return the images and the names in use, and record both."""
        listed = await cri.list_images()
        in_use = images_in_use(await cri.list_containers())
        now = time.time()
        images = [image_view(image) for image in listed]
        detected = now if self._initialized else policy.LONG_AGO
        self._seen = policy.observe(self._seen, images, in_use, detected, now)
        self._initialized = True
        await self._save()
        return images, in_use

    async def _save(self) -> None:
        images = {image: (seen.first_detected, seen.last_used) for image, seen in self._seen.items()}
        await self._file.save({"began": self._began, "images": images})

    async def _kept_images(self, cri: RelayedCri) -> frozenset[str]:
        """Return the names of the pause image, asked once. No container names it, and every pod needs it."""
        if self._kept is None:
            status = await cri.status(verbose=True)
            name = sandbox_image(status.info)
            image = await cri.image_status(name) if name else None
            self._kept = frozenset({name}) if image is None else image_view(image).names | {name}
        return self._kept

    async def _keeps_all(self, cri: RelayedCri) -> bool:
        """Return True when all images have to stay. The reason is logged once."""
        uids = pods_in(await cri.list_pod_sandbox())
        own = await self.blocking(DISK_S, self._own.among, uids)
        before, self._keeping = self._keeping, policy.why_keep_all(self.settings.keep_images, uids - own)
        if self._keeping and not before:
            log.warning("cannot remove any image: %s", self._keeping)
        return bool(self._keeping)

    # Collecting

    async def _unused(self, cri: RelayedCri) -> tuple[list[ImageView], list[Candidate]]:
        """Return all images, and the candidates for removal among them."""
        images, in_use = await self._list_images(cri)
        unused = policy.candidates(self._seen, images, in_use, await self._kept_images(cri), self._protection)
        if unused and await self._keeps_all(cri):
            unused = []
        return images, unused

    async def _collect(self, cri: RelayedCri, *, by_thresholds: bool) -> Tally:
        began = time.time()
        images, unused = await self._unused(cri)
        victims = policy.victims(unused, self._limits, self._began, began, aged=by_thresholds)
        tally = Tally()
        before = (await self._imagefs()).available_bytes if victims and not by_thresholds else 0
        if by_thresholds:
            for victim in victims:
                if victim.rule == "age":
                    await self._remove(cri, victim, tally)
            imagefs = await self._imagefs()
            if imagefs.capacity_bytes == 0:
                raise Refused("InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
            before = imagefs.available_bytes
            wanted = policy.bytes_to_free(imagefs.capacity_bytes, before, self._limits)
            if wanted:
                log.info("the image file system is over its high threshold; trying to free %d bytes", wanted)
                found = await self._free(cri, victims, before, wanted, tally)
                if found < wanted:
                    raise Refused("FreeDiskSpaceFailed", policy.not_enough_message(wanted, found))
        else:
            for victim in victims:
                await self._remove(cri, victim, tally)
            tally.freed = max(0, (await self._imagefs()).available_bytes - before) if victims else 0
        left = tuple(image.id for image in images if image.id not in tally.removed)
        self.peer("image_pull").tell(ImagesPresent(image_ids=left, time=began))
        return tally

    async def _imagefs(self) -> FsStats:
        return (await self.peer("stats").ask(GetNodeStats(max_age_s=0), STATS_S)).imagefs

    async def _free(self, cri: RelayedCri, victims: Sequence[Victim], before: int, wanted: int, tally: Tally) -> int:
        """Remove images for space until `wanted` more bytes are available than `before`; return that difference.

        Measured after each removal, because images share layers.
        """
        freed = 0
        for victim in victims:
            if freed >= wanted:
                break
            if victim.rule == "space" and await self._remove(cri, victim, tally):
                freed = max(0, (await self._imagefs()).available_bytes - before)
        tally.freed += freed
        return freed

    async def _remove(self, cri: RelayedCri, victim: Victim, tally: Tally) -> bool:
        image = victim.image
        try:
            await cri.remove_image(pb.ImageSpec(image=image.id, runtime_handler=image.runtime_handler))
        except CriError as error:
            log.warning("cannot remove image %s: %s", image.id, error)
            return False
        text = policy.removal_message(victim, time.time())
        log.info("%s", text)
        self._events.node("Normal", policy.REMOVED, text)
        metrics.IMAGES_COLLECTED.inc(victim.rule)
        tally.removed += (image.id,)
        self._seen.pop(image.id, None)
        return True


def _planned(victim: Victim, now: float) -> PlannedVictim:
    image = victim.image
    return PlannedVictim(
        kind="image",
        name=policy.shown_name(image),
        id=image.id,
        rule="over the maximum age" if victim.rule == "age" else "disk space",
        age_s=victim.unused_s(now),
        bytes=image.size_bytes,
    )


ACTOR = ImageGc
