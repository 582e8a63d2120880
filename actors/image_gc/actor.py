"""The image_gc actor: observes the use of images, and removes unused ones when the disk fills or they age.

While the runtime also runs another agent's pods, no image is removed: their use is not known here. Nor is one removed
while it is not known which images containers mount as volumes.

It runs one collection at a time. A checkpoint keeps the times of images' first sight and last use across restarts.

A start of the agent begins the observation anew, as in the kubelet. No image goes by age until the agent has run for
the maximum age: images may have been in use while none ran. At the first look, an image that the checkpoint lacks was
there before. A collection that comes earlier counts it as new: a pod may wait for an image that was just pulled.

Times are Unix seconds, for people. Within a start of the agent, ages are by the monotonic clock, as in the kubelet. A
step of the clock and a suspend move all times. Else each unused image would reach the maximum age at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from actors._base import Actor, handles
from actors._base.messaging.tasks import Semaphore
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from actors._events.recorder import Recorder
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors._host.files.own_pods import OwnPods
from actors._host.node.plans import CHANGED, Basis, LastPlan
from actors._host.system import agent_id
from actors._metrics import kubelet as metrics
from actors.image_gc import collection, policy
from actors.image_gc.collection import Look, Tally
from actors.image_gc.listing import (
    Handlers,
    handlers_by_name,
    image_view,
    image_views,
    images_in_use,
    pods_in,
    sandbox_image,
)
from actors.image_gc.mounts import ImageMounts
from actors.image_gc.policy import ImageView, InUse, Limits, Protection, Seen, Victim
from proto.common.until import Until
from proto.cri import api_pb2 as pb
from proto.node.eviction import PlannedVictim
from proto.node.image_gc import Collected, CollectGarbage, DeleteUnusedImages, Plan, PlanCollection
from proto.node.image_pull import ImagesPresent
from proto.node.stats import FsStats, GetNodeStats
from proto.v1 import ObjectReference
from proto.wire.errors import ActorError, Refused

log = logging.getLogger(__name__)

CHECKPOINT_VERSION = 1
FAILED = "ImageGCFailed"
STATS_S = 10.0
DISK_S = 10.0
FIRST_LOOK_S = 2.0
"""Pause after a first look that failed, at most a period. Images that are pulled until it succeeds count as old."""
STEP_S = 1.0
"""Smallest step of the clock that moves the times."""


class _Saved(msgspec.Struct, kw_only=True):
    """The checkpoint: times of first sight and last use by an image's key, and the start of the agent they are of."""

    agent: str = ""
    began: float
    clock: float | None = None
    """Wall clock less the monotonic one, in seconds."""
    images: dict[str, tuple[float, float]]


class ImageGc(Actor):
    """State: each image's first sight and last use, and the time since which images are observed."""

    name = "image_gc"
    asks = frozenset({"stats", "pleg"})

    async def rebuild(self) -> None:
        """Load the checkpoint. The runtime is asked later. Raises ValueError for invalid thresholds."""
        # Recorded, so that a replay knows whether the agent had started anew.
        self._agent = await self.blocking(DISK_S, agent_id, self.bus.supervisor_pidfd)
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
        self._mounts = ImageMounts(self)
        path = f"{paths.checkpoints_dir(settings.root_dir)}/{self.name}.json"
        loss = "after a restart all images count as unused"
        self._file = CheckpointFile(self, path, CHECKPOINT_VERSION, loss, deadline_s=DISK_S, sync=True)
        self._seen: dict[str, Seen] = {}
        self._runtime_handlers: Mapping[str, frozenset[str]] = {}
        """Runtime handlers by name of an image, as of the last look."""
        self._began, self._clock = time.time(), _clock()
        self._initialized = False
        self._last_error = ""
        self._collected = Tally()
        self._plan_shown = LastPlan()
        self._load()

    def _load(self) -> None:
        data = self._file.load()
        if data is None:
            return
        try:
            saved = msgspec.convert(data, _Saved)
        except msgspec.ValidationError as error:
            log.warning("cannot use the checkpoint %s: %s; starting without it", self._file.path, error)
            return
        self._seen = {image: policy.restored(times) for image, times in saved.images.items()}
        if self._agent and saved.agent == self._agent:  # only this actor was down
            self._began = saved.began
            if saved.clock is not None:
                self._clock = saved.clock
            self._follow_clock()
            self._began = min(self._began, time.time())
            # An image that is not in the checkpoint is new.
            self._initialized = True

    def _follow_clock(self) -> None:
        """Move all times by a step of the clock since the last call."""
        step_s = _clock() - self._clock
        if abs(step_s) >= STEP_S:
            self._clock += step_s
            self._began += step_s
            self._seen = policy.shifted(self._seen, step_s)

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
        self._follow_clock()
        look, going, basis = await collection.plan(self._on(cri), self._limits, self._began, available)
        self._plan_shown.keep(basis, time.monotonic())
        notes = (self._keeping,) if self._keeping else ()
        return Plan(victims=tuple(_planned(one, look.time) for one in going), notes=notes)

    def _on(self, cri: RelayedCri) -> _OnRuntime:
        return _OnRuntime(self, cri)

    async def _tick(self) -> float | None:
        if not self._initialized or self._limits.disabled:
            await self._look_only()
            return None if self._initialized else min(FIRST_LOOK_S, self.settings.image_gc_period_s)
        try:
            await self._guarded(by_thresholds=True)
        except Refused as refusal:
            log.warning(
                "cannot collect images: %s: %s; trying again after the next period", refusal.reason, refusal.message
            )
            if refusal.reason != FAILED:
                self._events.node("Warning", refusal.reason, refusal.message)
            if self._failed_before:  # as in the kubelet: the first failure may be due to missing stats
                self._events.node("Warning", FAILED, refusal.message)
            self._failed_before = True
        else:
            self._failed_before = False
        return None

    async def _look_only(self) -> None:
        try:
            async with self._gate:
                await self._list_images(self._runtime(), old=not self._initialized)
                self._initialized = True
        except (CriError, Refused) as error:
            self._last_error = str(error)
            log.warning("cannot list images and containers: %s; trying again at the next look", error)

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

    async def _list_images(self, cri: RelayedCri, *, old: bool = False) -> tuple[list[ImageView], InUse]:
        """Return the images and the names in use, and record both. `old`: images without a record were there before."""
        images = image_views(await cri.list_images(), by_handler=self.settings.images_by_handler)
        self._runtime_handlers = handlers_by_name(images)
        in_use = await self._names_in_use(cri, images)
        self._follow_clock()
        now = time.time()
        self._seen = policy.observe(self._seen, images, in_use, policy.LONG_AGO if old else now, now)
        await self._save()
        return images, in_use

    async def _names_in_use(self, cri: RelayedCri, images: Sequence[ImageView]) -> InUse:
        """Return the names by which containers use images. Mounts are read only if one of `images` might go."""
        containers = await cri.list_containers()
        handlers = None
        if self.settings.images_by_handler:
            sandboxes = await cri.list_pod_sandbox()
            handlers = Handlers({one.id: one.runtime_handler for one in sandboxes}, self._runtime_handlers)
        names, kept = images_in_use(containers, handlers), self._kept or frozenset()
        if all(policy.why_stays(one, names, kept, self._protection) for one in images):
            return names
        return names | await self._mounts.of(cri, [one.id for one in containers])

    async def _save(self) -> None:
        images = {image: (seen.first_detected, seen.last_used) for image, seen in self._seen.items()}
        await self._file.save(_Saved(agent=self._agent, began=self._began, clock=self._clock, images=images))

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

    async def look(self, cri: RelayedCri) -> Look:
        """List the images and the containers that use them."""
        now = time.time()
        images, in_use = await self._list_images(cri)
        kept = await self._kept_images(cri)
        unused = policy.candidates(self._seen, images, in_use, kept, self._protection)
        if unused and await self._keeps_all(cri):
            return Look(now, images, (), {one.key: self._keeping for one in images})
        stays = {one.key: policy.why_stays(one, in_use, kept, self._protection) for one in images}
        return Look(now, images, unused, stays)

    async def _collect(self, cri: RelayedCri, *, by_thresholds: bool) -> Tally:
        node, tally = self._on(cri), Tally()
        look = await node.look()
        run = collection.by_thresholds if by_thresholds else collection.all_unused
        try:
            await run(node, look, self._limits, self._began, tally)
        finally:
            if by_thresholds:
                self._compare(tally.basis(look))
        self.peer("image_pull").tell(ImagesPresent(image_ids=tally.left(look), time=look.time))
        return tally

    def _compare(self, act: Basis) -> None:
        """Tell how a collection differs from the plan that was shown."""
        if text := self._plan_shown.compare(act, time.monotonic()):
            log.warning("%s", text)
            self._events.node("Normal", CHANGED, text)

    async def imagefs(self) -> FsStats:
        """Measure the image file system now."""
        return (await self.peer("stats").ask(GetNodeStats(max_age_s=0), STATS_S)).imagefs

    async def remove(self, cri: RelayedCri, victim: Victim) -> str:
        """Remove an image if no container uses it now: earlier removals may have taken minutes."""
        image = victim.image
        try:
            if policy.is_used(image, await self._names_in_use(cri, [image])):
                return "in use"
            await cri.remove_image(pb.ImageSpec(image=image.id, runtime_handler=image.runtime_handler))
        except CriError as error:
            log.warning("cannot remove image %s: %s; trying again at the next collection", image.id, error)
            return f"not to be removed: {error}"
        text = policy.removal_message(victim, time.time())
        log.info("%s", text)
        # An object of its own: the recorder drops events of one object that come in a burst.
        self._events.object(
            ObjectReference(kind="Image", name=policy.object_name(image)), "Normal", policy.REMOVED, text
        )
        metrics.IMAGES_COLLECTED.inc(victim.rule)
        self._seen.pop(image.key, None)
        return ""


@dataclass(frozen=True)
class _OnRuntime:
    """The actor as a collection sees it."""

    actor: ImageGc
    cri: RelayedCri

    async def look(self) -> Look:
        return await self.actor.look(self.cri)

    async def imagefs(self) -> FsStats:
        return await self.actor.imagefs()

    async def remove(self, victim: Victim) -> str:
        return await self.actor.remove(self.cri, victim)


def _clock() -> float:
    return time.time() - time.monotonic()


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
