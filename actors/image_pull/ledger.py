"""Records of images that this agent has pulled, and of the credentials that allow their use.

The records are in memory and written through to files. Runs in the actor's mailbox thread, except file operations, one
at a time.

An image with neither intent nor record on disk counts as preloaded after a kill, so each pod might use it. So no pull
starts without its intent, and the intent stays until the record is written.

A pull that was cut short may still succeed in the runtime. So its intent stays until the image is found, or a later
pull of it succeeds. After a later pull that fails, the earlier call is cancelled, and its image has ARRIVES_S left to
come. Then the intent goes. The kubelet drops it at once.

An image whose record or intent cannot be used is pulled, under each policy. So are all images while the directories
cannot be read. What could not be read is read again until that succeeds. Source: pkg/kubelet/images/pullmanager
(RecordPullIntent, RecordImagePulled, RecordImagePullFailed; MustAttemptImagePull, which pulls after each error).
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from actors._base import Actor, Semaphore
from actors._cri.image_reference import Reference
from actors._metrics import kubelet as metrics
from actors.image_pull import verification
from actors.image_pull.keyring import Credentials
from actors.image_pull.records import Loaded, Records, file_name
from actors.image_pull.verification import (
    Answer,
    Policy,
    PullCredentials,
    PulledRecord,
    PullSecret,
    PullServiceAccount,
)
from proto.common.backoff import Backoff
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

T = TypeVar("T")

DISK_S = 5.0
READ_AGAIN = Backoff(1.0, cap_s=60.0)
"""Between tries to read the records."""
ARRIVES_S = 600.0
"""Time for which the image of a cancelled pull may still arrive. A runtime ends a cancelled pull within a minute."""

CredentialsBySecret = Mapping[PullSecret, Credentials]
"""Credentials for an image, by the pod's Secrets."""

CHECKS: Mapping[Answer, str] = {
    "yes": "credentialPolicyAllowed",
    "recorded": "credentialRecordFound",
    "no": "mustAuthenticate",
    "unreadable": "error",
}
"""Metric labels of the results, as in the kubelet."""


class Left(NamedTuple):
    """A pull that has ended, and whose intent stays."""

    until: float = math.inf
    """Monotonic seconds: its intent goes then, even if the image was not found."""
    before: str = ""
    """ID of the image with that name that was there before: the pull has not brought it."""

    def with_earlier(self, earlier: Left) -> Left:
        """Add an earlier pull. An image that was not there before one of them may be that one's."""
        return Left(max(self.until, earlier.until), self.before if self.before == earlier.before else "")


class Ledger:
    """Pull records of the node's images. With an empty policy nothing is recorded."""

    def __init__(self, actor: Actor, policy: Policy, allowlist: Iterable[str]) -> None:
        self._actor, self._policy, self._allowlist = actor, policy, tuple(allowlist)
        self._records = Records(actor.settings.root_dir)
        self._known = Loaded()
        self._unknown = False
        """The directories could not be read."""
        self._pulls: Counter[str] = Counter()
        """Number of pulls in progress, by the container's image name."""
        self._left: dict[str, Left] = {}
        """Images with an intent that stays after its pull: that was cut short, or its record is not written."""
        self._pulled_at: dict[str, float] = {}
        """Unix time of the last pull by image ID. A pull with known credentials leaves the record as it is."""
        self._unwritten: set[str] = set()
        """IDs of images whose record in memory is not on disk."""
        self._lock = Semaphore(1)
        """Held during an operation on files."""
        self._begins = Semaphore(1)
        """Held while an intent is written, which other pulls of the image wait for."""

    async def load(self) -> None:
        """Read the files once."""
        if not self._policy:
            return
        try:
            async with self._lock:
                loaded = await self._actor.blocking(DISK_S, self._records.load)
        except (OSError, AskTimeout) as error:
            if not self._unknown:
                log.error(
                    "cannot read the records of pulled images: %s; verifying the credentials of each pod at the "
                    "registry until they can be read", error
                )  # fmt: skip
            self._unknown = True
        else:
            self._unknown = False
            self._take(loaded)

    def _take(self, loaded: Loaded) -> None:
        """Add what is on disk to what was recorded meanwhile, which is newer."""
        known = self._known
        for name, problem in loaded.broken.items():
            if known.broken.get(name) != problem:
                log.warning("cannot use %s; its image's credentials are verified again", problem)
        newer = {file_name(image_ref) for image_ref in known.pulled}
        pulling = {file_name(image) for image in self._pulls}
        broken = {name: problem for name, problem in loaded.broken.items() if name not in newer}
        broken |= {name: problem for name, problem in known.broken.items() if name in pulling}
        self._left |= {image: Left() for image in loaded.intents - known.intents}
        intents, pulled = loaded.intents | known.intents, loaded.pulled | known.pulled
        self._known = Loaded(intents, pulled, broken, unread=loaded.unread)

    @property
    def is_read(self) -> bool:
        """False while a record, or the directory of all, could not be read."""
        return not self._unknown and not self._known.unread

    async def read_again(self) -> None:
        """Read what could not be read, until that is done."""
        failures = 0
        while not self.is_read:
            failures += 1
            await self._actor.sleep(READ_AGAIN.delay_s(failures))
            await self.load()

    def describe(self) -> dict[str, Any]:
        """The policy, and counts of records."""
        return {
            "policy": self._policy,
            "pulled": len(self._known.pulled),
            "intents": len(self._known.intents),
            "broken": sorted(self._known.broken.values()),
            "unread": self._unknown,
        }

    @property
    def left_over(self) -> tuple[str, ...]:
        """Images whose intent stays: their pull was cut short or withdrawn, or their record is not on disk."""
        return tuple(self._left)

    @property
    def has_unsettled(self) -> bool:
        """True while the image of a cancelled pull may still arrive."""
        return any(one.until < math.inf for one in self._left.values())

    def may_use(self, image: str, ref: Reference, image_ref: str) -> Answer:
        """Decide if a pod may use a present image; `image` is the container's image name."""
        if not self._policy:
            return "yes"
        record = self._known.pulled.get(image_ref)
        names = {file_name(image_ref), *(() if self._pulls[image] else (file_name(image),))}
        is_unreadable = self._unknown or not self._known.broken.keys().isdisjoint(names)
        is_pulled = record is not None or self._is_intended(image, image_ref)
        answer = verification.may_use(
            self._policy, self._allowlist, ref.repository, record, is_pulled=is_pulled, is_unreadable=is_unreadable
        )
        if answer != "credentials":
            metrics.MUST_PULL_CHECKS.inc(CHECKS[answer])
        return answer

    def _is_intended(self, image: str, image_ref: str) -> bool:
        """True when a pull may have brought the image. Of a withdrawn pull it is not the one from before."""
        left = self._left.get(image)
        was_there = left is not None and left.before == image_ref and not self._pulls[image]
        return image in self._known.intents and not was_there

    def accounts(self, ref: Reference, image_ref: str) -> frozenset[PullServiceAccount]:
        """The service accounts that may use a present image."""
        record = self._known.pulled.get(image_ref)
        allowed = record.credential_mapping.get(ref.repository) if record is not None else None
        return frozenset(allowed.kubernetes_service_accounts) if allowed is not None else frozenset()

    async def matches(
        self, ref: Reference, image_ref: str, secrets: Iterable[PullSecret], accounts: Iterable[PullServiceAccount]
    ) -> bool:
        """True when a Secret or service account of the pod matches the image's record.

        A new or changed Secret is added to it.
        """
        record = self._known.pulled.get(image_ref)
        found = verification.matching_secret(record, ref.repository, secrets) if record is not None else None
        by_account = not self.accounts(ref, image_ref).isdisjoint(accounts)
        metrics.MUST_PULL_CHECKS.inc(CHECKS["recorded" if found is not None or by_account else "no"])
        if record is None or found is None:
            return by_account
        known = record.credential_mapping[ref.repository].kubernetes_secrets
        if found not in known and len(known) < verification.MOST_SECRETS:
            await self._note(image_ref, ref, PullCredentials(kubernetes_secrets=(found,)))
        return True

    async def begin(self, image: str) -> None:
        """Record the start of a pull, so that the image counts as pulled by this agent in any case.

        Raises OSError or AskTimeout when it cannot be recorded: then the pull may not start.
        """
        if not self._policy:
            return
        self._pulls[image] += 1
        try:
            async with self._begins:
                if image not in self._known.intents:
                    is_new = await self._on_disk(self._records.write_intent, image)
                    self._known.intents.add(image)
                    if not is_new:
                        self._left.setdefault(image, Left())
        except (OSError, AskTimeout):
            await self._end(image)
            raise
        self._count()

    async def succeeded(
        self,
        image: str,
        ref: Reference,
        image_ref: str,
        used: Credentials | None,
        own: CredentialsBySecret,
        accounts: Mapping[Credentials, PullServiceAccount],
        *,
        is_seen: bool = True,
    ) -> None:
        """Record a pull with the credentials `used`, None without any. See `verification.pull_credentials`.

        `is_seen`: `image_ref` is the image's ID. Else it is what PullImage has answered, which may be another name.
        """
        if not self._policy:
            return
        self._pulled_at[image_ref] = time.time()
        is_on_disk = await self._note(image_ref, ref, verification.pull_credentials(used, own, accounts))
        if not is_seen:
            await self.unsettled(image, "")
            return
        if is_on_disk:
            self._known.broken.pop(file_name(image), None)
            self._left.pop(image, None)
        else:
            self._left[image] = Left()  # `settle` writes the record again
        await self._end(image)

    async def unsettled(self, image: str, before: str) -> None:
        """Record the end of a pull whose image is not seen: cancelled, the runtime may complete it nevertheless.

        `before`: ID of the image with that name that was there before; empty without one.
        """
        if self._policy:
            known = before if self.is_read else ""  # an intent that is not read may be of the pull that brought it
            left, earlier = Left(time.monotonic() + ARRIVES_S, known), self._left.get(image)
            self._left[image] = left if earlier is None else left.with_earlier(earlier)
            await self._end(image)

    def give_up(self, image: str) -> bool:
        """Bound the time in which the image of a pull that a kill cut short may arrive.

        For a failed pull of it. True: the time begins now, so that the call for the earlier pull has to be cancelled.
        """
        left = self._left.get(image)
        if left is None or left.until < math.inf:
            return False
        self._left[image] = left._replace(until=time.monotonic() + ARRIVES_S)
        return True

    async def failed(self, image: str) -> None:
        """Record the end of a pull that brought no image."""
        if self._policy:
            await self._end(image)

    async def _end(self, image: str) -> None:
        """Count a pull less, and drop the intent with the last one unless it has to stay."""
        self._pulls[image] -= 1
        if self._pulls[image] <= 0:
            del self._pulls[image]
            if image in self._left:
                return
            if image in self._known.intents:
                self._known.intents.discard(image)
                if file_name(image) not in self._known.broken:
                    await self._write(self._records.delete_intent, image)

    async def settle(self, images: Mapping[str, Iterable[str]]) -> None:
        """Complete the records of pulls whose intent stays. `images`: names of the node's images, by ID."""
        waiting = set[str]()
        for image_ref, names in images.items():
            for image in verification.images_of(self.left_over, names):
                if (left := self._left.get(image)) is None or left.before == image_ref:
                    continue
                record = verification.merged(self._known.pulled.get(image_ref), image_ref, "", None, time.time())
                if await self._put(record):
                    await self._settled(image)
                else:
                    waiting.add(image)
        now = time.monotonic()
        for image in [image for image, left in self._left.items() if left.until <= now and image not in waiting]:
            await self._settled(image)

    async def _settled(self, image: str) -> None:
        """Drop the intent, unless a pull of the image is in progress: then its end does."""
        self._left.pop(image, None)
        self._known.broken.pop(file_name(image), None)
        if not self._pulls[image]:
            self._known.intents.discard(image)
            await self._write(self._records.delete_intent, image)

    async def prune(self, present: Iterable[str], looked: float) -> None:
        """Drop records of images whose IDs were not `present` at the time `looked` (Unix seconds)."""
        ids = frozenset(present)
        gone = [ref for ref, one in self._known.pulled.items() if verification.is_unknown(one, ids, looked)]
        for image_ref in gone:
            # At each one: it may be pulled, or another call may drop it, during a write.
            if image_ref in self._known.pulled and self._pulled_at.get(image_ref, -math.inf) < int(looked):
                del self._known.pulled[image_ref]
                self._pulled_at.pop(image_ref, None)
                self._unwritten.discard(image_ref)
                await self._write(self._records.delete_pulled, image_ref)

    async def _note(self, image_ref: str, ref: Reference, allowed: PullCredentials) -> bool:
        """Add credentials to an image's record. False: it is not on disk."""
        before = self._known.pulled.get(image_ref)
        return await self._put(verification.merged(before, image_ref, ref.repository, allowed, time.time()))

    async def _put(self, record: PulledRecord) -> bool:
        """Put a record in place, and write it if it is not on disk as it is. False: it could not be written."""
        image_ref = record.image_ref
        if record is not self._known.pulled.get(image_ref):
            self._known.pulled[image_ref] = record
            self._known.broken.pop(file_name(image_ref), None)
            self._unwritten.add(image_ref)
        if image_ref not in self._unwritten:
            return True
        if not await self._write(self._records.write_pulled, record):
            return False
        if self._known.pulled.get(image_ref) is record:
            self._unwritten.discard(image_ref)
        return True

    async def _write(self, act: Callable[[Any], object], what: Any) -> bool:
        """Run `act`, and log its failure. False: it failed."""
        try:
            await self._on_disk(act, what)
        except (OSError, AskTimeout) as error:
            log.error("cannot write the record of a pulled image: %s; its credentials may be verified again", error)
            return False
        finally:
            self._count()
        return True

    async def _on_disk(self, act: Callable[[Any], T], what: Any) -> T:
        async with self._lock:
            return await self._actor.blocking(DISK_S, act, what)

    def _count(self) -> None:
        metrics.PULLED_RECORDS.set(len(self._known.pulled))
        metrics.PULL_INTENTS.set(len(self._known.intents))
