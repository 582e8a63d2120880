"""The image_pull actor: EnsureImage by the container's pull policy, over CRI's ImageService.

One ImageStatus for all who ask for an image at the same time, one PullImage for all who need it pulled, one pull at a
time for each registry (or maxParallelImagePulls over all). Decisions are in `policy.py`; credentials in `keyring.py`:
pulls with other credentials are other pulls, so that nobody waits for, or gets, what was refused or given to another.
An image that is there may be used by whoever can pull it: `ledger.py` knows who could.

Calls go through pleg: pulls are few, and a channel of its own would be 2.5 MB.

Killed in mid-pull nothing is lost: whoever waits gets ActorDead and asks again, and the runtime either finishes the
pull, so that the image is there, or starts it over. Back-offs begin anew, as when a kubelet restarts.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from actors._base import Actor, Semaphore, Task, handles
from actors._cri import image_reference
from actors._cri.call import Call
from actors._cri.errors import CriError
from actors._cri.image_reference import Reference
from actors._cri.relay import RelayedCri, RelayLost
from actors._events.recorder import EventType, Recorder
from actors._metrics import kubelet as metrics
from actors._objects.fetch import fetch_each
from actors._objects.peer import objects_of
from actors.image_pull import credentials, keyring, policy
from actors.image_pull.keyring import Credentials, Keyring, KeyringError
from actors.image_pull.ledger import Ledger
from actors.image_pull.plugins import Plugins
from actors.image_pull.policy import Present
from actors.image_pull.verification import Answer, PullSecret
from proto.cri import api_pb2 as pb
from proto.node.image_pull import EnsureImage, ImageEnsured, ImagesPresent
from proto.pods.objects import ObjectRef
from proto.v1 import ObjectReference
from proto.wire.errors import ActorError, AskTimeout, Refused

NODE_FILES_S = 5.0
"""For the node's Docker configuration; it may be on a disk that does not answer."""

SETTLE_AGAIN_S = 30.0

log = logging.getLogger(__name__)

T = TypeVar("T")
Wish = tuple[str, tuple[Credentials, ...]]
"""Image as the runtime is asked for it, and the credentials to try."""


class Failed(NamedTuple):
    """An inspection or a pull that failed."""

    reason: str
    message: str


class Pulled(NamedTuple):
    """A pull that succeeded."""

    image: Present
    pull_s: float
    used: Credentials | None


class Own(NamedTuple):
    """What the pod itself has to show."""

    keyring: Keyring | Failed
    held: dict[PullSecret, Credentials]
    """For the image at hand."""


class Pull(NamedTuple):
    """A pull that waits for its turn or is under way."""

    registry: str
    since: float
    task: Task[Pulled | Failed]


class ImagePull(Actor):
    """The kubelet's image manager."""

    name = "image_pull"
    asks = frozenset({"objects", "pleg"})
    blocking_threads = 16
    """Credential providers may take a minute each."""

    async def rebuild(self) -> None:
        """Who may use what; what is there is asked of the runtime image by image."""
        settings = self.settings
        self.events = Recorder(self.peer("events"))
        self.cri = RelayedCri(self.peer("pleg"))
        self.presence = policy.Presence()
        self.back_off = policy.BackOff(settings.image_pull_initial_back_off_s, settings.image_pull_max_back_off_s)
        self.rate = policy.TokenBucket(settings.registry_pull_qps, settings.registry_burst)
        self.inspections: dict[str, Task[Present | Failed | None]] = {}
        self.pulls: dict[Wish, Pull] = {}
        self.turns: dict[str, Semaphore] = {}
        self.calls = {"ImageStatus": 0, "PullImage": 0}
        self.plugins = Plugins(
            self, settings.image_credential_provider_config, settings.image_credential_provider_bin_dir
        )
        self.ledger = Ledger(self, settings.image_pull_verification, settings.image_pull_verification_allowlist)
        await self.ledger.load()

    def on_ready(self) -> None:
        """See what became of pulls that the last incarnation did not see the end of."""
        if self.ledger.left_over:
            self.spawn(self._settle(), "settle")

    async def _settle(self) -> None:
        try:
            listed = await self._asked(self.cri.list_images)
        except CriError as error:
            self.bus.call_later(SETTLE_AGAIN_S, lambda: self.post(self.on_ready, name="settle"))
            log.info("cannot see what became of earlier pulls: %s; the runtime is asked again", error)
            return
        await self.ledger.settle({one.id: (*one.repo_tags, *one.repo_digests) for one in listed})

    @handles(ImagesPresent)
    async def images_present(self, message: ImagesPresent) -> None:
        """Forget who may use what is gone."""
        await self.ledger.prune(message.image_ids, message.time)

    def describe(self) -> dict[str, Any]:
        """Pulls by image with their age, images being looked for, keys in back-off, CRI calls so far."""
        now = time.monotonic()
        return {
            "pulls": {image: round(now - pull.since, 1) for (image, _), pull in self.pulls.items()},
            "inspections": list(self.inspections),
            "back_off": dict(list(self.back_off.remaining(now).items())[:20]),
            "calls": dict(self.calls),
            "credential_providers": self.plugins.describe(),
            "verification": self.ledger.describe(),
        }

    @handles(EnsureImage)
    def ensure_image(self, request: EnsureImage) -> ImageEnsured | Coroutine[Any, None, ImageEnsured]:
        """Answered at once when the image was seen a moment ago and need not be pulled."""
        try:
            ref = image_reference.parse(request.image)
        except image_reference.InvalidImageName as error:
            self._event(request, "Warning", "InspectFailed", str(error))
            raise Refused("InvalidImageName", str(error), retry=False) from None
        key = ref.image
        if request.policy == "Always":
            return self._pull_for(request, ref, key, "unknown")
        found = self.presence.get(key, time.monotonic())
        if found is None:
            return self._find_or_pull(request, ref, key)
        answer = self.ledger.may_use(request.image, ref, found.image_ref)
        return self._present(request, found) if answer == "yes" else self._verify(request, ref, key, found, answer)

    def _present(self, request: EnsureImage, found: Present) -> ImageEnsured:
        metrics.ENSURE_IMAGE.inc(request.policy.lower(), "true", "false")
        verified = bool(self.settings.image_pull_verification)
        self._event(request, "Normal", "Pulled", policy.present_message(request.image, verified=verified))
        return ImageEnsured(image_ref=found.image_ref, pulled=False, user=found.user)

    def _event(self, request: EnsureImage, kind: EventType, reason: str, message: str) -> None:
        container = ObjectReference(
            kind="Pod",
            namespace=request.pod_namespace,
            name=request.pod_name,
            uid=request.pod_uid,
            api_version="v1",
            field_path=request.field_path or None,
        )
        self.events.object(container, kind, reason, message)

    async def _find_or_pull(self, request: EnsureImage, ref: Reference, key: str) -> ImageEnsured:
        inspection = self.inspections.get(key)
        if inspection is None:
            inspection = self.inspections[key] = self.spawn(self._inspect(key), "inspect")
        found = await inspection
        if isinstance(found, Failed):
            self._event(request, "Warning", "InspectFailed", found.message)
            raise Refused(*found)
        if found is not None:
            answer = self.ledger.may_use(request.image, ref, found.image_ref)
            return await self._verify(request, ref, key, found, answer)
        if request.policy == "Never":
            raise self._never(request)
        return await self._pull_for(request, ref, key, "false")

    async def _verify(
        self, request: EnsureImage, ref: Reference, key: str, found: Present, answer: Answer
    ) -> ImageEnsured:
        """The image is there: the pod gets it if it may, else if the registry gives it to the pod."""
        if answer == "secrets":
            own = await self._own(request, ref)
            if isinstance(own.keyring, Failed):
                raise Refused(*own.keyring)
            answer = "yes" if await self.ledger.opens(ref, found.image_ref, own.held) else "no"
        if answer == "yes":
            return self._present(request, found)
        if request.policy == "Never":
            raise self._never(request)
        return await self._pull_for(request, ref, key, "true")

    def _never(self, request: EnsureImage) -> Refused:
        metrics.ENSURE_IMAGE.inc(request.policy.lower(), "false", "false")
        message = policy.never_message(request.image)
        self._event(request, "Warning", "ErrImageNeverPull", message)
        return Refused("ErrImageNeverPull", message)

    async def _inspect(self, key: str) -> Present | Failed | None:
        """Whether the image is there."""
        try:
            return await self._image_status(key, key)
        except CriError as error:
            return Failed("ImageInspectError", policy.inspect_message(key, error.grpc_text()))
        finally:
            del self.inspections[key]

    async def _image_status(self, key: str, image: str) -> Present | None:
        self.calls["ImageStatus"] += 1
        status = await self._asked(self.cri.image_status, image)
        if status is None or not status.id:
            return None
        user = policy.image_user(status.uid.value if status.HasField("uid") else None, status.username)
        found = Present(status.id, user, status.size)
        self.presence.put(key, found, time.monotonic())
        return found

    async def _asked(self, call: Callable[..., Call[T]], *args: Any) -> T:
        """The runtime's answer; asked once more if pleg ended over it, so that its end is nobody's failed pull."""
        try:
            return await call(*args)
        except RelayLost:
            return await call(*args)

    async def _pull_for(self, request: EnsureImage, ref: Reference, key: str, present: str) -> ImageEnsured:
        metrics.ENSURE_IMAGE.inc(request.policy.lower(), present, "true")
        began = time.monotonic()
        own = await self._own(request, ref)
        tried = tuple(own.keyring.lookup(ref.repository)) if isinstance(own.keyring, Keyring) else own.keyring
        back_off_key = policy.back_off_key(request.pod_uid, request.image)
        previous = self.back_off.refusal(back_off_key, began, tried)
        if previous is not None:
            self._event(request, "Normal", "BackOff", policy.back_off_message(request.image, ""))
            raise Refused("ImagePullBackOff", policy.back_off_message(request.image, previous))
        self._event(request, "Normal", "Pulling", f'Pulling image "{request.image}"')
        await self.ledger.begin(request.image)
        found = await self._credentials(own.keyring, ref)
        if isinstance(found, Failed):
            outcome: Pulled | Failed = found
        else:
            outcome = await self._joined_pull(ref, (key, found), began)
        now = time.monotonic()
        if isinstance(outcome, Failed):
            await self.ledger.failed(request.image)
            self._event(request, "Warning", "Failed", f'Failed to pull image "{request.image}": {outcome.message}')
            self.back_off.failed(back_off_key, f"{outcome.reason}: {outcome.message}", now, tried)
            raise Refused(*outcome)
        self.back_off.forget_old(now)
        image = outcome.image
        await self.ledger.succeeded(request.image, ref, image.image_ref, outcome.used, own.held)
        metrics.IMAGE_PULL_SECONDS.observe(outcome.pull_s, policy.size_class(image.size_bytes))
        message = policy.pulled_message(request.image, outcome.pull_s, now - began, image.size_bytes)
        self._event(request, "Normal", "Pulled", message)
        return ImageEnsured(image_ref=image.image_ref, pulled=True, user=image.user)

    async def _own(self, request: EnsureImage, ref: Reference) -> Own:
        """The pod's own credentials; a back-off is for them, since what is new may open the registry."""
        refs = tuple(
            ObjectRef(kind="Secret", namespace=request.pod_namespace, name=name) for name in request.pull_secrets
        )
        try:
            # One that may not be read is none: the pull is tried without it, as upstream.
            found = (await fetch_each(objects_of(self), refs))[0] if refs else {}
        except ActorError as error:
            raise Refused("ErrImagePull", f"cannot read the pull secrets: {error}") from error
        missing = [one.name for one in refs if one not in found]
        if missing:
            self._event(request, "Warning", *policy.missing_secrets(missing))
        try:
            ring: Keyring | Failed = credentials.of_secrets(refs, found)
        except KeyringError as error:
            ring = Failed("ErrImagePull", str(error))
        return Own(ring, credentials.held_by(refs, found, ref.repository))

    async def _credentials(self, secrets: Keyring | Failed, ref: Reference) -> tuple[Credentials, ...] | Failed:
        """What to try, in order: of the pod's Secrets, of the node's files, of its credential providers."""
        if isinstance(secrets, Failed):
            return secrets
        home = os.environ.get("HOME", "")
        try:
            node = await self.blocking(NODE_FILES_S, credentials.of_node, self.settings.root_dir, home)
        except AskTimeout as error:
            return Failed("ErrImagePull", f"cannot read the node's Docker configuration: {error}")
        return keyring.lookup((secrets, node, await self.plugins.keyring(ref.repository)), ref.repository)

    def _joined_pull(self, ref: Reference, wish: Wish, now: float) -> Task[Pulled | Failed]:
        """The pull of that image which is under way or waits for its turn; else a new one."""
        pull = self.pulls.get(wish)
        if pull is not None:
            return pull.task
        task = self.spawn(self._pull(ref, wish), "pull")
        if not task.done():
            self.pulls[wish] = Pull(ref.registry, now, task)
        return task

    async def _pull(self, ref: Reference, wish: Wish) -> Pulled | Failed:
        """Pull when it is this image's turn."""
        try:
            turn = self._turn(ref.registry)
            if turn is None:
                return await self._pull_now(ref, wish)
            async with turn:
                return await self._pull_now(ref, wish)
        finally:
            self.pulls.pop(wish, None)
            if all(pull.registry != ref.registry for pull in self.pulls.values()):
                self.turns.pop(ref.registry, None)

    def _turn(self, registry: str) -> Semaphore | None:
        # serializeImagePulls is one queue for the node in the kubelet, where a registry that does not answer holds up
        # the images of all others; its purpose, not to overload a registry or the runtime, is kept by one queue each.
        if self.settings.serialize_image_pulls:
            return self.turns.setdefault(registry, Semaphore(1))
        width = self.settings.max_parallel_image_pulls
        if width is None:
            return None
        if "" not in self.turns:
            self.turns[""] = Semaphore(width)
        return self.turns[""]

    async def _pull_now(self, ref: Reference, wish: Wish) -> Pulled | Failed:
        began = time.monotonic()
        if not self.rate.take(began):
            return Failed("ErrImagePull", policy.PULL_QPS_EXCEEDED)
        errors: list[str] = []
        for one in wish[1] or (None,):
            self.calls["PullImage"] += 1
            auth = None if one is None else pb.AuthConfig(username=one.username, password=one.password)
            try:
                image_ref = await self._asked(self.cri.pull_image, ref.image, auth)
            except CriError as error:
                errors.append(policy.pull_error_text(error.code, error.details))
                continue
            return Pulled(await self._pulled(wish[0], image_ref), time.monotonic() - began, one)
        return Failed(*policy.pull_error(ref.image, errors))

    async def _pulled(self, image: str, image_ref: str) -> Present:
        try:
            found = await self._image_status(image, image_ref)
        except CriError:
            found = None  # the image is there; only its user is not known
        return found or Present(image_ref, "")


ACTOR = ImagePull
