"""The pulls in the queues and in progress. Requests with the same PullKey share one PullImage call.

Each registry has one pull at a time, or maxParallelImagePulls limits them over all. A pull may last a day, but after
TURN_S its registry's next one starts beside it. Runs in the actor's mailbox thread.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from actors._base import Actor, Semaphore, Task, first_of
from actors._base.messaging import waits
from actors._base.messaging.tasks import Cancelled
from actors._cri.errors import CriError
from actors._cri.image_reference import Reference
from actors._cri.relay import RelayedCri
from actors.image_pull import policy
from actors.image_pull.images import Failed, Images, Variant, relayed
from actors.image_pull.keyring import Credentials
from actors.image_pull.policy import Present
from proto.common.token_bucket import TokenBucket
from proto.cri import api_pb2 as pb
from proto.node.image_pull import EnsureImage
from proto.pods.pleg import CancelPull

TURN_S = 600.0
"""Time after which a pull delays its registry's next one no longer: it may hang."""

CONFIG_ERROR = "CreateContainerConfigError"
"""The kubelet's reason when the runtime does not tell the user of an image."""


class PullKey(NamedTuple):
    """Pulls with the same key are one. Pods of a workload have it in common; CRI-O has policies for each namespace."""

    variant: Variant
    tried: tuple[Credentials, ...]
    """Credentials to try, in order."""
    namespace: str


class PullFailed(NamedTuple):
    """A pull that failed. Requests that write the image's name in different ways share it."""

    text: str
    """The runtime's error."""


class Pulled(NamedTuple):
    """A pull that succeeded."""

    image_ref: str
    image: Present | Failed
    """Failed: the runtime does not tell its user."""
    pull_s: float
    used: Credentials | None


@dataclass(slots=True, eq=False)
class Pull:
    """A pull in the queue or in progress."""

    registry: str
    since: float
    before: str | Task[Present | Failed | None]
    """ID of the image with that name that was there before, empty without one; or the look for it."""
    task: Task[Pulled | PullFailed] = field(init=False)
    askers: int = 0
    """Requests that wait for it."""
    is_called: bool = False
    """The runtime was asked for it."""

    async def image_before(self) -> str:
        """ID of the image with that name that was there before; empty without one."""
        found = self.before if isinstance(self.before, str) else await self.before
        if isinstance(found, Present):
            return found.image_ref
        return found if isinstance(found, str) else ""


class Pulls:
    """The pulls under way, by key."""

    def __init__(self, actor: Actor, cri: RelayedCri, images: Images) -> None:
        settings = actor.settings
        self._actor, self._cri, self._images = actor, cri, images
        self._is_serial, self._width = settings.serialize_image_pulls, settings.max_parallel_image_pulls
        self._rate = TokenBucket(settings.registry_pull_qps, settings.registry_burst)
        self._pulls: dict[PullKey, Pull] = {}
        self._queues: dict[str, Semaphore] = {}
        self.calls = 0
        """Number of PullImage calls."""

    def ages(self, now: float) -> dict[str, float]:
        """Seconds since the oldest pull of each image began to wait or to run."""
        newest_first = reversed(self._pulls.items())
        return {key.variant.image: round(now - pull.since, 1) for key, pull in newest_first}

    @property
    def askers(self) -> int:
        """Number of requests that wait for pulls."""
        return sum(pull.askers for pull in self._pulls.values())

    def has(self, image: str) -> bool:
        """True while an image of that name for the runtime is pulled, or is to be."""
        return any(key.variant.image == image for key in self._pulls)

    def shared(self, request: EnsureImage, ref: Reference, key: PullKey, present: str | None) -> Pull:
        """The same pull that is queued or in progress, else a new one with this request's sandbox.

        `present`: ID of that image on the node, empty without one; None: not known, so it is looked for if it matters.
        """
        if (known := self._pulls.get(key)) is not None:
            return known
        before: str | Task[Present | Failed | None] = present or ""
        if present is None and self._actor.settings.image_pull_verification:
            found = self._images.seen(key.variant)
            before = self._images.look(key.variant, request.annotations) if found is None else found.image_ref
        pull = self._pulls[key] = Pull(ref.registry, time.monotonic(), before)
        pull.task = self._actor.spawn(self._pull(request, ref, key, pull), "pull")
        return pull

    async def _pull(self, request: EnsureImage, ref: Reference, key: PullKey, pull: Pull) -> Pulled | PullFailed:
        called: Task[Pulled | PullFailed] | None = None
        try:
            queue = self._queue(ref.registry)
            if queue is None:
                return await self._pull_now(request, key, pull)
            turn = waits.begin("queue", f"host/{ref.registry}", f"pulls of {ref.registry} that began before")
            try:
                async with queue:
                    turn.end()
                    called = self._actor.spawn(self._pull_now(request, key, pull), "pull")
                    await (self._turn(called) if self._is_serial else called)
            finally:
                turn.end()
            return await called
        except Cancelled:
            if called is not None:
                called.cancel()
            raise
        finally:
            self._pulls.pop(key, None)
            if all(one.registry != ref.registry for one in self._pulls.values()):
                self._queues.pop(ref.registry, None)

    async def _turn(self, pull: Task[Pulled | PullFailed]) -> None:
        """Wait for the pull, at most TURN_S."""
        limit = self._actor.sleep(TURN_S)
        try:
            await first_of(pull, limit)
        finally:
            limit.cancel()

    def _queue(self, registry: str) -> Semaphore | None:
        # The kubelet's serializeImagePulls has one queue for the node, so a hanging registry delays all others. One
        # queue for each registry keeps its purpose: not to overload a registry or the runtime.
        if self._is_serial:
            return self._queues.setdefault(registry, Semaphore(1))
        return self._queues.setdefault("", Semaphore(self._width)) if self._width is not None else None

    async def _pull_now(self, request: EnsureImage, key: PullKey, pull: Pull) -> Pulled | PullFailed:
        began = time.monotonic()
        if not self._rate.try_take(began):
            return PullFailed(policy.PULL_QPS_EXCEEDED)
        image, sandbox = key.variant.image, _sandbox(request)
        spec = key.variant.spec(request.annotations)
        errors: list[str] = []
        for one in key.tried or (None,):
            if one is not None and not one.is_utf8:
                errors.append(policy.NOT_UTF8)
                continue
            self.calls += 1
            pull.is_called = True
            auth = None if one is None else pb.AuthConfig(username=one.username, password=one.password)
            try:
                image_ref = await relayed(self._cri.pull_image, spec, auth, sandbox)
            except CriError as error:
                errors.append(policy.pull_error_text(error.code, error.details))
                continue
            except Cancelled:
                pod_uid = sandbox.metadata.uid if sandbox is not None else ""
                self._actor.peer("pleg").tell(CancelPull(image=image, pod_uid=pod_uid))
                raise
            if not image_ref:
                errors.append(policy.without_ref(image))
                continue
            spec.image = image_ref
            return Pulled(image_ref, await self._pulled(key.variant, spec), time.monotonic() - began, one)
        return PullFailed(policy.joined(errors))

    async def _pulled(self, variant: Variant, spec: pb.ImageSpec) -> Present | Failed:
        problem = "the runtime does not know it right after its pull"
        try:
            found = await self._images.status(variant, spec)
        except CriError as error:
            found, problem = None, error.grpc_text()
        return found or Failed(CONFIG_ERROR, policy.inspect_message(variant.image, problem))


def _sandbox(request: EnsureImage) -> pb.PodSandboxConfig | None:
    """The config of the pod's sandbox, by which a runtime chooses policies, credentials and the cgroup of a pull."""
    if not request.sandbox_config:
        return None
    config = pb.PodSandboxConfig.FromString(request.sandbox_config)
    config.annotations.update(request.annotations)
    return config
