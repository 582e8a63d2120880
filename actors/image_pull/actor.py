"""The image_pull actor: carries out EnsureImage by the container's pull policy, over CRI's ImageService.

Concurrent requests for an image share one ImageStatus call, and one PullImage call per PullKey. Each registry has one
pull at a time, or maxParallelImagePulls limits them over all. A pull may last a day, but after TURN_S its registry's
next one starts beside it.

When a pod's end begins, pod_workers withdraws the pod's requests. A pull without any other request leaves the queue, or
its call is cancelled, as in the kubelet. `askers.py` knows the requests, `ledger.py` what the runtime may still do.

A present image may be used only by pods that could pull it: `ledger.py` records the pulls. `policy.py` has the
decisions, `keyring.py` the credentials.

Calls go through pleg, since pulls are few and a gRPC channel takes 2.5 MB. After a kill, callers get ActorDead and ask
again, and the runtime has finished the pull or starts it again. Back-offs start over, as in a restarted kubelet.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from actors._base import Actor, Semaphore, Task, first_of, handles
from actors._base.messaging import waits
from actors._base.messaging.mailbox import TimerHandle
from actors._base.messaging.tasks import Cancelled
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
from actors.image_pull.askers import Asked, Askers
from actors.image_pull.keyring import Credentials, Keyring, KeyringError
from actors.image_pull.ledger import Ledger
from actors.image_pull.plugins import Plugins, PodIdentity
from actors.image_pull.policy import Present
from actors.image_pull.verification import ALLOWED, Answer, PullSecret, PullServiceAccount
from proto.common.token_bucket import TokenBucket
from proto.cri import api_pb2 as pb
from proto.node.image_pull import DropPulls, EnsureImage, ExpectImages, ImageEnsured, ImagesPresent, KeepPulls
from proto.pods.objects import ObjectRef
from proto.pods.pleg import CancelPull
from proto.v1 import ObjectReference
from proto.wire.errors import ActorError, AskTimeout, Refused

NODE_FILES_S = 5.0
"""Deadline for the node's Docker configuration, which may be on a hanging disk."""

SETTLE_AGAIN_S = 30.0
"""Until the runtime is asked again for the images of pulls that were cut short."""

TURN_S = 600.0
"""Time after which a pull delays its registry's next one no longer: it may hang."""

CONFIG_ERROR = "CreateContainerConfigError"
"""The kubelet's reason when the runtime does not tell the user of an image."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class Variant(NamedTuple):
    """An image as the runtime may tell it apart."""

    image: str
    """Name for the runtime."""
    annotations: tuple[tuple[str, str], ...] = ()
    """The pod's annotations by which a runtime chooses how to pull."""
    runtime_handler: str = ""
    """The pod's runtime handler, with the feature gate RuntimeClassInImageCriApi."""

    def spec(self, annotations: Mapping[str, str]) -> pb.ImageSpec:
        """The ImageSpec of a call, with all annotations of the pod."""
        return pb.ImageSpec(image=self.image, annotations=annotations, runtime_handler=self.runtime_handler)


class PullKey(NamedTuple):
    """Pulls with the same key are one. Pods of a workload have it in common; CRI-O has policies for each namespace."""

    variant: Variant
    tried: tuple[Credentials, ...]
    """Credentials to try, in order."""
    namespace: str


class IncompleteImage(CriError):
    """The runtime describes an image without its ID or size. Neither that it is present nor its absence is certain."""

    def __init__(self, message: str) -> None:
        super().__init__("", message)

    def grpc_text(self) -> str:
        """The text alone: the kubelet, too, finds this itself."""
        return self.details


class Failed(NamedTuple):
    """The answer to a request that failed."""

    reason: str
    message: str


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


class PodCredentials(NamedTuple):
    """Credentials of the pod's pull Secrets."""

    keyring: Keyring | Failed
    held: dict[PullSecret, Credentials]
    """Credentials for the requested image, by Secret."""


class ToTry(NamedTuple):
    """Credentials for a pull, in order, and the service accounts that alone have some of them."""

    tried: tuple[Credentials, ...]
    accounts: Mapping[Credentials, PullServiceAccount]


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


class ImagePull(Actor):
    """The kubelet's image manager."""

    name = "image_pull"
    asks = frozenset({"objects", "pleg"})
    blocking_threads = 16
    """Credential providers may take a minute each."""

    async def rebuild(self) -> None:
        """Load the records of pulls; the runtime is asked for images one by one later."""
        settings = self.settings
        self.events = Recorder(self.peer("events"))
        self.cri = RelayedCri(self.peer("pleg"))
        self.presence: policy.Presence[Variant] = policy.Presence()
        self.back_off = policy.PullBackOff(settings.image_pull_initial_back_off_s, settings.image_pull_max_back_off_s)
        self.rate = TokenBucket(settings.registry_pull_qps, settings.registry_burst)
        self.inspections: dict[Variant, Task[Present | Failed | None]] = {}
        self.pulls: dict[PullKey, Pull] = {}
        self.askers = Askers()
        self._waits = waits.Standing()
        self.queues: dict[str, Semaphore] = {}
        self.calls = {"ImageStatus": 0, "PullImage": 0}
        self.plugins = Plugins(
            self, settings.image_credential_provider_config, settings.image_credential_provider_bin_dir
        )
        self.ledger = Ledger(self, settings.image_pull_verification, settings.image_pull_verification_allowlist)
        self._settles = False
        self._settle_timer: TimerHandle | None = None
        await self.ledger.load()

    def on_ready(self) -> None:
        """Complete the records of pulls that were in progress when the last incarnation ended."""
        self._settle_left()
        if not self.ledger.is_read:
            self.spawn(self._read_again(), "read again")

    async def _read_again(self) -> None:
        await self.ledger.read_again()
        self._settle_left()

    def _settle_left(self) -> None:
        if self._settle_timer is not None:
            self._settle_timer.cancel()
            self._settle_timer = None
        if self._settles:
            self._settle_later()
        elif self.ledger.left_over:
            self._settles = True
            self.spawn(self._settle(), "settle")

    def _settle_later(self) -> None:
        if self._settle_timer is None:
            self._settle_timer = self.after(SETTLE_AGAIN_S, self._settle_left)

    async def _settle(self) -> None:
        again = True
        try:
            listed = await self._call(self.cri.list_images)
            await self.ledger.settle({one.id: (*one.repo_tags, *one.repo_digests) for one in listed})
            again = self.ledger.has_unsettled
        except CriError as error:
            log.info("cannot list the images of earlier pulls: %s; asking the runtime again", error)
        finally:
            self._settles = False
        if again:
            self._settle_later()

    @handles(ImagesPresent)
    async def images_present(self, message: ImagesPresent) -> None:
        """Drop the records of images that are not on the node any more. Those of earlier pulls may have come since."""
        await self.ledger.prune(message.image_ids, message.time)
        self._settle_left()

    @handles(DropPulls)
    def drop_pulls(self, message: DropPulls) -> None:
        """Withdraw the requests of a pod that ends."""
        self.askers.drop(message.pod_uid)

    @handles(KeepPulls)
    def keep_pulls(self, message: KeepPulls) -> None:
        """Withdraw the requests of all other pods."""
        self.askers.keep(message.pod_uids)

    def describe(self) -> dict[str, Any]:
        """Pulls by image with seconds of the oldest, the number of requests for them, inspected images, keys in
        back-off, and counts of CRI calls."""
        now = time.monotonic()
        newest_first = reversed(self.pulls.items())
        return {
            "pulls": {key.variant.image: round(now - pull.since, 1) for key, pull in newest_first},
            "requests": sum(pull.askers for pull in self.pulls.values()),
            "inspections": [variant.image for variant in self.inspections],
            "back_off": dict(list(self.back_off.remaining(now).items())[:20]),
            "calls": dict(self.calls),
            "credential_providers": self.plugins.describe(),
            "verification": self.ledger.describe(),
        }

    @handles(ExpectImages)
    def expect_images(self, message: ExpectImages) -> None:
        """Look for images of which it is not known that they are present."""
        for image in message.images:
            try:
                ref = image_reference.parse(image)
            except image_reference.InvalidImageName:
                continue  # refused when it is asked for
            variant = _variant(message, ref)
            if self.presence.get(variant, time.monotonic()) is None:
                self._inspection(variant, message.annotations)

    @handles(EnsureImage)
    def ensure_image(self, request: EnsureImage) -> ImageEnsured | Coroutine[Any, None, ImageEnsured]:
        """Make an image available; answers at once when it was seen a moment ago and need not be pulled."""
        try:
            ref = image_reference.parse(request.image)
        except image_reference.InvalidImageName as error:
            _count(request, present=None, required=None)
            self._event(request, "Warning", "InspectFailed", str(error))
            raise Refused("InvalidImageName", str(error), retry=False) from None
        asked = Asked(request, ref)
        if request.policy == "Always":
            return self.askers.serve(asked, self._pull_for(asked, None))
        found = self.presence.get(_variant(request, ref), time.monotonic())
        if found is None:
            return self.askers.serve(asked, self._find_or_pull(asked))
        answer = self.ledger.may_use(request.image, ref, found.image_ref)
        if answer in ALLOWED:
            return self._present(request, found)
        return self.askers.serve(asked, self._verify(asked, found, answer))

    def _present(self, request: EnsureImage, found: Present) -> ImageEnsured:
        _count(request, present=True, required=False)
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

    async def _find_or_pull(self, asked: Asked) -> ImageEnsured:
        request, ref = asked.request, asked.ref
        found = await self._inspection(_variant(request, ref), request.annotations)
        if isinstance(found, Failed):
            _count(request, present=None, required=None)
            self._event(request, "Warning", "InspectFailed", found.message)
            raise Refused(*found)
        if found is not None:
            answer = self.ledger.may_use(request.image, ref, found.image_ref)
            return await self._verify(asked, found, answer)
        if request.policy == "Never":
            raise self._never(request, present=False)
        return await self._pull_for(asked, "")

    async def _verify(self, asked: Asked, found: Present, answer: Answer) -> ImageEnsured:
        """Let the pod use a present image if it may; otherwise pull it with the pod's credentials."""
        request, ref = asked.request, asked.ref
        if answer == "credentials":
            try:
                own = await self._pod_credentials(request, ref)
                if isinstance(own.keyring, Failed):
                    raise Refused(*own.keyring)
            except Refused:
                metrics.MUST_PULL_CHECKS.inc("error")
                _count(request, present=True, required=None)
                raise
            accounts: Iterable[PullServiceAccount] = ()
            if self.ledger.accounts(ref, found.image_ref):
                accounts = (await self.plugins.credentials(ref.repository, _identity(request))).accounts.values()
            answer = "recorded" if await self.ledger.matches(ref, found.image_ref, own.held, accounts) else "no"
        if answer in ALLOWED:
            return self._present(request, found)
        if request.policy == "Never":
            raise self._never(request, present=True)
        return await self._pull_for(asked, found.image_ref)

    def _never(self, request: EnsureImage, *, present: bool) -> Refused:
        """`present`: the image is there, but this pod may not use it. The message does not tell that."""
        _count(request, present=present, required=True if present else None)
        message = policy.never_message(request.image)
        self._event(request, "Warning", "ErrImageNeverPull", message)
        return Refused("ErrImageNeverPull", message)

    def _inspection(self, variant: Variant, annotations: Mapping[str, str]) -> Task[Present | Failed | None]:
        """Return the running inspection of an image; start one if there is none."""
        if variant not in self.inspections:
            self.inspections[variant] = self.spawn(self._inspect(variant, annotations), "inspect")
        return self.inspections[variant]

    async def _inspect(self, variant: Variant, annotations: Mapping[str, str]) -> Present | Failed | None:
        try:
            return await self._image_status(variant, variant.spec(annotations))
        except CriError as error:
            return Failed("ImageInspectError", policy.inspect_message(variant.image, error.grpc_text()))
        finally:
            del self.inspections[variant]

    async def _image_status(self, variant: Variant, spec: pb.ImageSpec) -> Present | None:
        self.calls["ImageStatus"] += 1
        status = await self._call(self.cri.image_status, spec)
        if status is None:
            return None
        if not status.id or not status.size:
            raise IncompleteImage(policy.without_size(spec.image))
        user = policy.image_user(status.uid.value if status.HasField("uid") else None, status.username)
        found = Present(status.id, user, status.size)
        self.presence.put(variant, found, time.monotonic())
        return found

    async def _call(self, call: Callable[..., Call[T]], *args: Any) -> T:
        # Repeated once if pleg died meanwhile, so that its death does not fail a pull.
        try:
            return await call(*args)
        except RelayLost:
            return await call(*args)

    async def _pull_for(self, asked: Asked, present: str | None) -> ImageEnsured:
        """Pull the image. `present`: ID of that image on the node, empty without one; None when it is not known."""
        asked.require_wanted()
        request, ref = asked.request, asked.ref
        _count(request, present=None if present is None else bool(present), required=True)
        began = time.monotonic()
        waits.on_behalf_of(waits.Subject(f"image/{ref.image}"))
        own = await self._pod_credentials(request, ref)
        tried = tuple(own.keyring.lookup(ref.repository)) if isinstance(own.keyring, Keyring) else own.keyring
        back_off_key = policy.back_off_key(request.pod_uid, request.image)
        previous = self.back_off.refusal(back_off_key, began, tried)
        if previous is not None:
            self._event(request, "Normal", "BackOff", policy.back_off_message(request.image, ""))
            raise Refused("ImagePullBackOff", policy.back_off_message(request.image, previous))
        asked.require_wanted()
        self._event(request, "Normal", "Pulling", f'Pulling image "{request.image}"')
        await self.ledger.begin(request.image)
        found = await self._credentials(own.keyring, ref, _identity(request))
        outcome: Pulled | PullFailed | None = PullFailed(found.message) if isinstance(found, Failed) else None
        if isinstance(found, ToTry):
            outcome = await self._outcome(asked, found.tried, present)
        if outcome is None:
            raise asked.withdrawn()
        now = time.monotonic()
        if isinstance(outcome, PullFailed):
            await self.ledger.failed(request.image)
            self._event(request, "Warning", "Failed", f'Failed to pull image "{request.image}": {outcome.text}')
            failed = Failed(*policy.pull_error(request.image, outcome.text))
            self.back_off.failed(back_off_key, f"{failed.reason}: {failed.message}", now, tried)
            self._record_back_off(back_off_key, ref.image, failed.message, now)
            raise Refused(*failed)
        self.back_off.forget_old(now)
        self._waits.drop(back_off_key)
        image = outcome.image
        accounts = {} if isinstance(found, Failed) else found.accounts
        is_seen, size_bytes = (True, image.size_bytes) if isinstance(image, Present) else (False, 0)
        image_ref = image.image_ref if isinstance(image, Present) else outcome.image_ref
        await self.ledger.succeeded(request.image, ref, image_ref, outcome.used, own.held, accounts, is_seen=is_seen)
        if not is_seen:
            self._settle_later()
        metrics.IMAGE_PULL_SECONDS.observe(now - began, policy.size_class(size_bytes))
        message = policy.pulled_message(request.image, outcome.pull_s, now - began, size_bytes)
        self._event(request, "Normal", "Pulled", message)
        if isinstance(image, Failed):  # without its user the container would run as root
            raise Refused(*image)
        return ImageEnsured(image_ref=image.image_ref, pulled=True, user=image.user)

    async def _outcome(
        self, asked: Asked, tried: tuple[Credentials, ...], present: str | None
    ) -> Pulled | PullFailed | None:
        """Wait for the pull. None: the request was withdrawn."""
        request, ref = asked.request, asked.ref
        if asked.is_withdrawn:
            await self.ledger.failed(request.image)
            return None
        key = PullKey(_variant(request, ref), tried, request.pod_namespace)
        pull = self._shared_pull(request, ref, key, present)
        pull.askers += 1
        with waits.waiting("condition", f"image/{ref.image}", "its pull", subject=_subject(request)):
            await first_of(pull.task, asked.gone)
        pull.askers -= 1
        if pull.task.done():
            return pull.task.result(0)
        if not pull.askers:
            pull.task.cancel()
        if pull.is_called:
            found = pull.before if isinstance(pull.before, str) else await pull.before
            before = found.image_ref if isinstance(found, Present) else found if isinstance(found, str) else ""
            await self.ledger.unsettled(request.image, before)
            self._settle_later()
        else:
            await self.ledger.failed(request.image)
        return None

    def _record_back_off(self, back_off_key: str, image: str, error: str, now: float) -> None:
        remaining = self.back_off.remaining(now)
        self._waits.keep(set(remaining))
        next_try = now + remaining.get(back_off_key, 0.0)
        self._waits.put(
            back_off_key, waits.Subject(f"image/{image}"), "retry", "its pull", error=error, next_try=next_try
        )

    async def _pod_credentials(self, request: EnsureImage, ref: Reference) -> PodCredentials:
        """The pod's credentials. A back-off holds for these credentials only, since new ones may succeed."""
        refs = tuple(
            ObjectRef(kind="Secret", namespace=request.pod_namespace, name=name) for name in request.pull_secrets
        )
        try:
            # A Secret that cannot be read is ignored, as in the kubelet.
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
        return PodCredentials(ring, credentials.held_by(refs, found, ref.repository))

    async def _credentials(self, secrets: Keyring | Failed, ref: Reference, pod: PodIdentity) -> ToTry | Failed:
        """Credentials to try, in order: of the pod's Secrets, the node's files, the credential providers."""
        if isinstance(secrets, Failed):
            return secrets
        home = os.environ.get("HOME", "")
        try:
            node = await self.blocking(NODE_FILES_S, credentials.of_node, self.settings.root_dir, home)
        except AskTimeout as error:
            return Failed("ErrImagePull", f"cannot read the node's Docker configuration: {error}")
        plugins = await self.plugins.credentials(ref.repository, pod)
        of_node = node.lookup(ref.repository)
        accounts = {one: account for one, account in plugins.accounts.items() if one not in of_node}
        return ToTry(keyring.lookup((secrets, node, plugins.keyring), ref.repository), accounts)

    def _shared_pull(self, request: EnsureImage, ref: Reference, key: PullKey, present: str | None) -> Pull:
        """The same pull that is queued or in progress, else a new one with this request's sandbox."""
        if (known := self.pulls.get(key)) is not None:
            return known
        before: str | Task[Present | Failed | None] = present or ""
        if present is None and self.settings.image_pull_verification:
            found = self.presence.get(key.variant, time.monotonic())
            before = self._inspection(key.variant, request.annotations) if found is None else found.image_ref
        pull = self.pulls[key] = Pull(ref.registry, time.monotonic(), before)
        pull.task = self.spawn(self._pull(request, ref, key, pull), "pull")
        return pull

    async def _pull(self, request: EnsureImage, ref: Reference, key: PullKey, pull: Pull) -> Pulled | PullFailed:
        called: Task[Pulled | PullFailed] | None = None
        try:
            queue = self._pull_queue(ref.registry)
            if queue is None:
                return await self._pull_now(request, key, pull)
            turn = waits.begin("queue", f"host/{ref.registry}", f"pulls of {ref.registry} that began before")
            try:
                async with queue:
                    turn.end()
                    called = self.spawn(self._pull_now(request, key, pull), "pull")
                    await (self._turn(called) if self.settings.serialize_image_pulls else called)
            finally:
                turn.end()
            return await called
        except Cancelled:
            if called is not None:
                called.cancel()
            raise
        finally:
            self.pulls.pop(key, None)
            if all(one.registry != ref.registry for one in self.pulls.values()):
                self.queues.pop(ref.registry, None)

    async def _turn(self, pull: Task[Pulled | PullFailed]) -> None:
        """Wait for the pull, at most TURN_S."""
        limit = self.sleep(TURN_S)
        try:
            await first_of(pull, limit)
        finally:
            limit.cancel()

    def _pull_queue(self, registry: str) -> Semaphore | None:
        # The kubelet's serializeImagePulls has one queue for the node, so a hanging registry delays all others. One
        # queue for each registry keeps its purpose: not to overload a registry or the runtime.
        if self.settings.serialize_image_pulls:
            return self.queues.setdefault(registry, Semaphore(1))
        width = self.settings.max_parallel_image_pulls
        return self.queues.setdefault("", Semaphore(width)) if width is not None else None

    async def _pull_now(self, request: EnsureImage, key: PullKey, pull: Pull) -> Pulled | PullFailed:
        began = time.monotonic()
        if not self.rate.try_take(began):
            return PullFailed(policy.PULL_QPS_EXCEEDED)
        image, sandbox = key.variant.image, _sandbox(request)
        spec = key.variant.spec(request.annotations)
        errors: list[str] = []
        for one in key.tried or (None,):
            if one is not None and not one.is_utf8:
                errors.append(policy.NOT_UTF8)
                continue
            self.calls["PullImage"] += 1
            pull.is_called = True
            auth = None if one is None else pb.AuthConfig(username=one.username, password=one.password)
            try:
                image_ref = await self._call(self.cri.pull_image, spec, auth, sandbox)
            except CriError as error:
                errors.append(policy.pull_error_text(error.code, error.details))
                continue
            except Cancelled:
                pod_uid = sandbox.metadata.uid if sandbox is not None else ""
                self.peer("pleg").tell(CancelPull(image=image, pod_uid=pod_uid))
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
            found = await self._image_status(variant, spec)
        except CriError as error:
            found, problem = None, error.grpc_text()
        return found or Failed(CONFIG_ERROR, policy.inspect_message(variant.image, problem))


def _count(request: EnsureImage, *, present: bool | None, required: bool | None) -> None:
    """Count a request. None: it failed before that was known."""
    labels = ["unknown" if one is None else str(one).lower() for one in (present, required)]
    metrics.ENSURE_IMAGE.inc(request.policy.lower(), *labels)


def _subject(request: EnsureImage) -> waits.Subject:
    outer = waits.SUBJECT.get()
    ask = outer.ask if outer is not None else None
    return waits.Subject(f"pod/{request.pod_namespace}/{request.pod_name}", request.pod_uid, ask)


def _variant(request: EnsureImage | ExpectImages, ref: Reference) -> Variant:
    return Variant(ref.image, policy.choosing(request.annotations), request.runtime_handler)


def _sandbox(request: EnsureImage) -> pb.PodSandboxConfig | None:
    """The config of the pod's sandbox, by which a runtime chooses policies, credentials and the cgroup of a pull."""
    if not request.sandbox_config:
        return None
    config = pb.PodSandboxConfig.FromString(request.sandbox_config)
    config.annotations.update(request.annotations)
    return config


def _identity(request: EnsureImage) -> PodIdentity:
    return PodIdentity(request.pod_namespace, request.pod_name, request.pod_uid, request.service_account)


ACTOR = ImagePull
