"""Which images this agent has pulled, and who may use them: the records in memory, written through to their files.

Runs in the actor's mailbox thread but for the file operations, of which one is under way at a time. A write that fails
is logged: the worst that follows is that credentials are shown to the registry once more.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from actors._base import Actor, Semaphore
from actors._cri.image_reference import Reference
from actors._metrics import kubelet as metrics
from actors.image_pull import verification
from actors.image_pull.keyring import Credentials
from actors.image_pull.records import Loaded, Records, file_name
from actors.image_pull.verification import Answer, Openers, Policy, PullSecret
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

DISK_S = 5.0

Held = Mapping[PullSecret, Credentials]
"""A pod's Secrets and what they hold for an image."""

CHECKS = {"yes": "credentialPolicyAllowed", "no": "mustAuthenticate", "found": "credentialRecordFound"}
"""Results by the kubelet's names."""


class Ledger:
    """See the module. With an empty policy nothing is kept."""

    def __init__(self, actor: Actor, policy: Policy, allowlist: Iterable[str]) -> None:
        self._actor, self._policy, self._allowlist = actor, policy, tuple(allowlist)
        self._records = Records(actor.settings.root_dir)
        self._known = Loaded()
        self._pulls: Counter[str] = Counter()
        """Pulls under way, by image as the container names it."""
        self._alone = Semaphore(1)

    async def load(self) -> None:
        """The files. Without them, nothing is known to have been pulled."""
        if not self._policy:
            return
        try:
            self._known = await self._actor.blocking(DISK_S, self._records.load)
        except (OSError, AskTimeout) as error:
            log.error("cannot read the records of pulled images: %s; images count as there before this agent", error)

    def describe(self) -> dict[str, Any]:
        """Counts."""
        return {
            "policy": self._policy,
            "pulled": len(self._known.pulled),
            "intents": len(self._known.intents),
        }

    @property
    def left_over(self) -> tuple[str, ...]:
        """Images whose pull was under way when an earlier incarnation ended."""
        return tuple(image for image in self._known.intents if not self._pulls[image])

    def may_use(self, image: str, ref: Reference, image_ref: str) -> Answer:
        """Whether a pod may use the image that is there; `image` as its container names it."""
        if not self._policy:
            return "yes"
        record = self._known.pulled.get(image_ref)
        is_pulled = record is not None or image in self._known.intents or file_name(image_ref) in self._known.broken
        answer = verification.may_use(self._policy, self._allowlist, ref.repository, record, is_pulled=is_pulled)
        if answer != "secrets":
            metrics.MUST_PULL_CHECKS.inc(CHECKS[answer])
        return answer

    async def opens(self, ref: Reference, image_ref: str, secrets: Iterable[PullSecret]) -> bool:
        """Whether one of the pod's Secrets has opened the image before; one that is new or has changed is noted."""
        record = self._known.pulled.get(image_ref)
        found = verification.opened_by(record, ref.repository, secrets) if record is not None else None
        metrics.MUST_PULL_CHECKS.inc(CHECKS["no" if found is None else "found"])
        if record is None or found is None:
            return False
        known = record.credential_mapping[ref.repository].kubernetes_secrets
        if found not in known and len(known) < verification.MOST_SECRETS:
            await self._note(image_ref, ref, Openers(kubernetes_secrets=(found,)))
        return True

    async def begin(self, image: str) -> None:
        """A pull begins: whatever happens now, the image is this agent's."""
        if not self._policy:
            return
        self._pulls[image] += 1
        if image not in self._known.intents:
            self._known.intents.add(image)
            await self._write(self._records.write_intent, image)

    async def succeeded(
        self,
        image: str,
        ref: Reference,
        image_ref: str,
        used: Credentials | None,
        own: Held,
    ) -> None:
        """It was pulled with those credentials, None for none. `own`: the pod's Secrets and what they hold."""
        if self._policy:
            await self._note(image_ref, ref, verification.openers_of(used, own))
            await self.failed(image)

    async def failed(self, image: str) -> None:
        """It was not pulled, or all about it is noted."""
        if not self._policy:
            return
        self._pulls[image] -= 1
        if self._pulls[image] <= 0:
            del self._pulls[image]
            self._known.intents.discard(image)
            await self._write(self._records.delete_intent, image)

    async def settle(self, images: Mapping[str, Iterable[str]]) -> None:
        """What became of pulls that an earlier incarnation began: `images` on the node, by ID with their names."""
        for image_ref, names in images.items():
            for image in verification.images_of(self.left_over, names):
                record = verification.merged(self._known.pulled.get(image_ref), image_ref, "", None, time.time())
                if record is not self._known.pulled.get(image_ref):
                    self._known.pulled[image_ref] = record
                    await self._write(self._records.write_pulled, record)
                self._known.intents.discard(image)
                await self._write(self._records.delete_intent, image)

    async def prune(self, present: Iterable[str], looked: float) -> None:
        """Forget images that are gone: not among those `present` (IDs) at that time (Unix seconds)."""
        ids = frozenset(present)
        gone = [ref for ref, one in self._known.pulled.items() if verification.is_unknown(one, ids, looked)]
        for image_ref in gone:
            del self._known.pulled[image_ref]
            await self._write(self._records.delete_pulled, image_ref)

    async def _note(self, image_ref: str, ref: Reference, openers: Openers) -> None:
        before = self._known.pulled.get(image_ref)
        after = verification.merged(before, image_ref, ref.repository, openers, time.time())
        if after is not before:
            self._known.pulled[image_ref] = after
            self._known.broken.discard(file_name(image_ref))
            await self._write(self._records.write_pulled, after)

    async def _write(self, act: Callable[[Any], None], what: Any) -> None:
        try:
            async with self._alone:
                await self._actor.blocking(DISK_S, act, what)
        except (OSError, AskTimeout) as error:
            log.error("cannot keep a record of a pulled image: %s; its credentials may be verified again", error)
        metrics.PULLED_RECORDS.set(len(self._known.pulled))
        metrics.PULL_INTENTS.set(len(self._known.intents))
