"""The image_pull actor: carries out EnsureImage by the container's pull policy, over CRI's ImageService.

`images.py` looks for images, `pulls.py` has the pulls and their queues. Requests share both.

When a pod's end begins, pod_workers withdraws the pod's requests. A pull without any other request leaves the queue, or
its call is cancelled, as in the kubelet. `askers.py` knows the requests, `ledger.py` what the runtime may still do.

A present image may be used only by pods that could pull it: `ledger.py` records the pulls. `policy.py` has the
decisions, `keyring.py` the credentials, and `credentials` their sources.

Calls go through pleg, since pulls are few and a gRPC channel takes 2.5 MB. After a kill, callers get ActorDead and ask
again, and the runtime has finished the pull or starts it again. Back-offs start over, as in a restarted kubelet.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from actors._base import Actor, first_of, handles
from actors._base.messaging import waits
from actors._base.messaging.mailbox import TimerHandle
from actors._cri import image_reference
from actors._cri.errors import CriError
from actors._cri.image_reference import Reference
from actors._cri.relay import RelayedCri
from actors._events.recorder import EventType, Recorder
from actors._metrics import kubelet as metrics
from actors._objects.fetch import fetch_each
from actors._objects.peer import objects_of
from actors.image_pull import keyring, policy
from actors.image_pull.askers import Asked, Askers
from actors.image_pull.credentials import sources
from actors.image_pull.credentials.plugins import Plugins, PodIdentity
from actors.image_pull.images import Failed, Images, relayed, variant_of
from actors.image_pull.keyring import Credentials, Keyring, KeyringError
from actors.image_pull.ledger import Ledger
from actors.image_pull.policy import Present
from actors.image_pull.pulls import Pulled, PullFailed, PullKey, Pulls
from actors.image_pull.verification import ALLOWED, Answer, PullSecret, PullServiceAccount
from proto.node.image_pull import DropPulls, EnsureImage, ExpectImages, ImageEnsured, ImagesPresent, KeepPulls
from proto.pods.objects import ObjectRef
from proto.pods.pleg import CancelPull
from proto.v1 import ObjectReference
from proto.wire.errors import ActorError, AskTimeout, Refused

NODE_FILES_S = 5.0
"""Deadline for the node's Docker configuration, which may be on a hanging disk."""

SETTLE_AGAIN_S = 30.0
"""Until the runtime is asked again for the images of pulls that were cut short."""

log = logging.getLogger(__name__)


class PodCredentials(NamedTuple):
    """Credentials of the pod's pull Secrets."""

    keyring: Keyring | Failed
    held: dict[PullSecret, Credentials]
    """Credentials for the requested image, by Secret."""


class ToTry(NamedTuple):
    """Credentials for a pull, in order, and the service accounts that alone have some of them."""

    tried: tuple[Credentials, ...]
    accounts: Mapping[Credentials, PullServiceAccount]


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
        self.back_off = policy.PullBackOff(settings.image_pull_initial_back_off_s, settings.image_pull_max_back_off_s)
        self.images = Images(self, self.cri)
        self.pulls = Pulls(self, self.cri, self.images)
        self.askers = Askers()
        self._waits = waits.Standing()
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
            listed = await relayed(self.cri.list_images)
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
        return {
            "pulls": self.pulls.ages(now),
            "requests": self.pulls.askers,
            "inspections": self.images.looked_for,
            "back_off": dict(list(self.back_off.remaining(now).items())[:20]),
            "calls": {"ImageStatus": self.images.calls, "PullImage": self.pulls.calls},
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
            variant = variant_of(message, ref)
            if self.images.seen(variant) is None:
                self.images.look(variant, message.annotations)

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
        found = self.images.seen(variant_of(request, ref))
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
        found = await self.images.look(variant_of(request, ref), request.annotations)
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
        try:
            await self.ledger.begin(request.image)
        except (OSError, AskTimeout) as error:
            raise Refused("ErrImagePull", policy.not_recorded(request.image, error)) from error
        self._event(request, "Normal", "Pulling", f'Pulling image "{request.image}"')
        found = await self._credentials(own.keyring, ref, _identity(request))
        outcome: Pulled | PullFailed | None = PullFailed(found.message) if isinstance(found, Failed) else None
        if isinstance(found, ToTry):
            outcome = await self._outcome(asked, found.tried, present)
        if outcome is None:
            raise asked.withdrawn()
        if isinstance(outcome, PullFailed):
            raise await self._failed(asked, outcome, tried)
        self.back_off.forget_old(time.monotonic())
        self._waits.drop(back_off_key)
        accounts = {} if isinstance(found, Failed) else found.accounts
        return await self._succeeded(asked, outcome, own.held, accounts, began)

    async def _failed(self, asked: Asked, outcome: PullFailed, tried: object) -> Refused:
        """Record and report a failed pull, and begin the back-off for the credentials `tried`; the answer to it.

        If nothing else pulls the image, a pull of an earlier process is cancelled, too.
        """
        request, ref, now = asked.request, asked.ref, time.monotonic()
        if not self.pulls.has(ref.image) and self.ledger.give_up(request.image):
            self.peer("pleg").tell(CancelPull(image=ref.image, pod_uid=None))
            self._settle_later()
        await self.ledger.failed(request.image)
        self._event(request, "Warning", "Failed", f'Failed to pull image "{request.image}": {outcome.text}')
        failed = Failed(*policy.pull_error(request.image, outcome.text))
        back_off_key = policy.back_off_key(request.pod_uid, request.image)
        self.back_off.failed(back_off_key, f"{failed.reason}: {failed.message}", now, tried)
        self._record_back_off(back_off_key, ref.image, failed.message, now)
        return Refused(*failed)

    async def _succeeded(
        self,
        asked: Asked,
        outcome: Pulled,
        own: Mapping[PullSecret, Credentials],
        accounts: Mapping[Credentials, PullServiceAccount],
        began: float,
    ) -> ImageEnsured:
        """Record and report a pull; `own`, `accounts`: the pod's credentials. Refused when its user is not known."""
        request, ref, image, took_s = asked.request, asked.ref, outcome.image, time.monotonic() - began
        is_seen, size_bytes = (True, image.size_bytes) if isinstance(image, Present) else (False, 0)
        image_ref = image.image_ref if isinstance(image, Present) else outcome.image_ref
        await self.ledger.succeeded(request.image, ref, image_ref, outcome.used, own, accounts, is_seen=is_seen)
        if not is_seen:
            self._settle_later()
        metrics.IMAGE_PULL_SECONDS.observe(took_s, policy.size_class(size_bytes))
        message = policy.pulled_message(request.image, outcome.pull_s, took_s, size_bytes)
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
        key = PullKey(variant_of(request, ref), tried, request.pod_namespace)
        pull = self.pulls.shared(request, ref, key, present)
        pull.askers += 1
        with waits.waiting("condition", f"image/{ref.image}", "its pull", subject=_subject(request)):
            await first_of(pull.task, asked.gone)
        pull.askers -= 1
        if pull.task.done():
            return pull.task.result(0)
        if not pull.askers:
            pull.task.cancel()
        if pull.is_called:
            await self.ledger.unsettled(request.image, await pull.image_before())
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
            ring: Keyring | Failed = sources.of_secrets(refs, found)
        except KeyringError as error:
            ring = Failed("ErrImagePull", str(error))
        return PodCredentials(ring, sources.held_by(refs, found, ref.repository))

    async def _credentials(self, secrets: Keyring | Failed, ref: Reference, pod: PodIdentity) -> ToTry | Failed:
        """Credentials to try, in order: of the pod's Secrets, the node's files, the credential providers."""
        if isinstance(secrets, Failed):
            return secrets
        home = os.environ.get("HOME", "")
        try:
            node = await self.blocking(NODE_FILES_S, sources.of_node, self.settings.root_dir, home)
        except AskTimeout as error:
            return Failed("ErrImagePull", f"cannot read the node's Docker configuration: {error}")
        plugins = await self.plugins.credentials(ref.repository, pod)
        of_node = node.lookup(ref.repository)
        accounts = {one: account for one, account in plugins.accounts.items() if one not in of_node}
        return ToTry(keyring.lookup((secrets, node, plugins.keyring), ref.repository), accounts)


def _count(request: EnsureImage, *, present: bool | None, required: bool | None) -> None:
    """Count a request. None: it failed before that was known."""
    labels = ["unknown" if one is None else str(one).lower() for one in (present, required)]
    metrics.ENSURE_IMAGE.inc(request.policy.lower(), *labels)


def _subject(request: EnsureImage) -> waits.Subject:
    outer = waits.SUBJECT.get()
    ask = outer.ask if outer is not None else None
    return waits.Subject(f"pod/{request.pod_namespace}/{request.pod_name}", request.pod_uid, ask)


def _identity(request: EnsureImage) -> PodIdentity:
    return PodIdentity(request.pod_namespace, request.pod_name, request.pod_uid, request.service_account)


ACTOR = ImagePull
