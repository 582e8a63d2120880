"""Records of images that this agent has pulled, and of the credentials that allow their use.

The records are in memory and written through to files. Runs in the actor's mailbox thread, except file operations, one
at a time. A failed write is logged; at worst credentials are verified by the registry again.
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
from actors.image_pull.verification import Answer, Policy, PullCredentials, PullSecret, PullServiceAccount
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

DISK_S = 5.0

CredentialsBySecret = Mapping[PullSecret, Credentials]
"""Credentials for an image, by the pod's Secrets."""

CHECKS = {"yes": "credentialPolicyAllowed", "no": "mustAuthenticate", "found": "credentialRecordFound"}
"""Metric labels of the results, as in the kubelet."""


class Ledger:
    """Pull records of the node's images. With an empty policy nothing is recorded."""

    def __init__(self, actor: Actor, policy: Policy, allowlist: Iterable[str]) -> None:
        self._actor, self._policy, self._allowlist = actor, policy, tuple(allowlist)
        self._records = Records(actor.settings.root_dir)
        self._known = Loaded()
        self._pulls: Counter[str] = Counter()
        """Number of pulls in progress, by the container's image name."""
        self._lock = Semaphore(1)

    async def load(self) -> None:
        """Read the files. Without them all images count as preloaded."""
        if not self._policy:
            return
        try:
            self._known = await self._actor.blocking(DISK_S, self._records.load)
        except (OSError, AskTimeout) as error:
            log.error("cannot read the records of pulled images: %s; all images count as preloaded", error)

    def describe(self) -> dict[str, Any]:
        """The policy, and counts of records."""
        return {
            "policy": self._policy,
            "pulled": len(self._known.pulled),
            "intents": len(self._known.intents),
        }

    @property
    def left_over(self) -> tuple[str, ...]:
        """Images whose pull was in progress when an earlier incarnation ended."""
        return tuple(image for image in self._known.intents if not self._pulls[image])

    def may_use(self, image: str, ref: Reference, image_ref: str) -> Answer:
        """Decide if a pod may use a present image; `image` is the container's image name."""
        if not self._policy:
            return "yes"
        record = self._known.pulled.get(image_ref)
        is_pulled = record is not None or image in self._known.intents or file_name(image_ref) in self._known.broken
        answer = verification.may_use(self._policy, self._allowlist, ref.repository, record, is_pulled=is_pulled)
        if answer != "credentials":
            metrics.MUST_PULL_CHECKS.inc(CHECKS[answer])
        return answer

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
        metrics.MUST_PULL_CHECKS.inc(CHECKS["found" if found is not None or by_account else "no"])
        if record is None or found is None:
            return by_account
        known = record.credential_mapping[ref.repository].kubernetes_secrets
        if found not in known and len(known) < verification.MOST_SECRETS:
            await self._note(image_ref, ref, PullCredentials(kubernetes_secrets=(found,)))
        return True

    async def begin(self, image: str) -> None:
        """Record the start of a pull, so that the image counts as pulled by this agent in any case."""
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
        own: CredentialsBySecret,
        accounts: Mapping[Credentials, PullServiceAccount],
    ) -> None:
        """Record a pull with the credentials `used`, None without any. See `verification.pull_credentials`."""
        if self._policy:
            await self._note(image_ref, ref, verification.pull_credentials(used, own, accounts))
            await self.failed(image)

    async def failed(self, image: str) -> None:
        """Record the end of a pull, after a failure or once its record is written."""
        if not self._policy:
            return
        self._pulls[image] -= 1
        if self._pulls[image] <= 0:
            del self._pulls[image]
            self._known.intents.discard(image)
            await self._write(self._records.delete_intent, image)

    async def settle(self, images: Mapping[str, Iterable[str]]) -> None:
        """Complete the records of an earlier incarnation's pulls. `images`: names of the node's images, by ID."""
        for image_ref, names in images.items():
            for image in verification.images_of(self.left_over, names):
                record = verification.merged(self._known.pulled.get(image_ref), image_ref, "", None, time.time())
                if record is not self._known.pulled.get(image_ref):
                    self._known.pulled[image_ref] = record
                    await self._write(self._records.write_pulled, record)
                self._known.intents.discard(image)
                await self._write(self._records.delete_intent, image)

    async def prune(self, present: Iterable[str], looked: float) -> None:
        """Drop records of images whose IDs were not `present` at the time `looked` (Unix seconds)."""
        ids = frozenset(present)
        gone = [ref for ref, one in self._known.pulled.items() if verification.is_unknown(one, ids, looked)]
        for image_ref in gone:
            del self._known.pulled[image_ref]
            await self._write(self._records.delete_pulled, image_ref)

    async def _note(self, image_ref: str, ref: Reference, allowed: PullCredentials) -> None:
        before = self._known.pulled.get(image_ref)
        after = verification.merged(before, image_ref, ref.repository, allowed, time.time())
        if after is not before:
            self._known.pulled[image_ref] = after
            self._known.broken.discard(file_name(image_ref))
            await self._write(self._records.write_pulled, after)

    async def _write(self, act: Callable[[Any], None], what: Any) -> None:
        try:
            async with self._lock:
                await self._actor.blocking(DISK_S, act, what)
        except (OSError, AskTimeout) as error:
            log.error("cannot write the record of a pulled image: %s; its credentials may be verified again", error)
        metrics.PULLED_RECORDS.set(len(self._known.pulled))
        metrics.PULL_INTENTS.set(len(self._known.intents))
