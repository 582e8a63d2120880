"""Decides if a pod may use a present image without verifying its credentials at the registry. Pure.

The credentials of each pull are recorded, and pods with other credentials have to pull again. Covers the policies of
imagePullCredentialsVerificationPolicy and the content of records; `records.py` has their files. Source: KEP-2535,
pkg/kubelet/images/pullmanager of Kubernetes 1.36.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from actors._cri import image_reference
from actors.image_pull.keyring import Credentials

Version = Literal["kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"]
API_VERSION: Version = "kubelet.config.k8s.io/v1beta1"
MOST_SECRETS = 100
"""Limit of Secrets in a record that are added without a pull."""

Policy = Literal["", "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"]
"""Empty: nothing is recorded or verified (feature gate KubeletEnsureSecretPulledImages)."""
Answer = Literal["yes", "recorded", "no", "unreadable", "credentials"]
"""Answer to a pod's use of an image.

The policy allows it (`yes`), or the image's record does (`recorded`). The registry has to allow it (`no`), also because
the record is broken (`unreadable`). `credentials`: depends on the pod's pull Secrets and its service account.
"""
ALLOWED: frozenset[Answer] = frozenset({"yes", "recorded"})


class _Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A part of a file. As in the kubelet a missing field is empty, and an unknown field breaks the file."""


class PullSecret(_Part, frozen=True, order=True):
    """Reference to a Secret with credentials for the image, with their hash."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    """Empty for a Secret of the objects directory."""
    credential_hash: str = ""

    @property
    def where(self) -> tuple[str, str, str]:
        """(namespace, name, UID), without its content."""
        return self.namespace, self.name, self.uid


class PullServiceAccount(_Part, frozen=True, order=True):
    """A service account for whose token a credential provider gave credentials."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PullCredentials(_Part, frozen=True, omit_defaults=True):
    """Credentials that gave access to a repository (upstream's ImagePullCredentials)."""

    kubernetes_secrets: tuple[PullSecret, ...] = ()
    kubernetes_service_accounts: tuple[PullServiceAccount, ...] = ()
    node_pods_accessible: bool = False
    """The image needs no credentials, or only the node's."""


class PullIntent(_Part, frozen=True):
    """A pull that is in progress, or was when the agent ended."""

    kind: Literal["ImagePullIntent"]
    api_version: Version
    image: str = ""


class PulledRecord(_Part, frozen=True):
    """An image that was pulled by this node's agent."""

    kind: Literal["ImagePulledRecord"]
    api_version: Version
    last_updated_time: Annotated[datetime, msgspec.Meta(tz=True)] = datetime.min.replace(tzinfo=UTC)
    """Whole seconds."""
    image_ref: str = ""
    credential_mapping: dict[str, PullCredentials] = {}
    """Credentials by repository, such as `docker.io/library/busybox`."""


def may_use(
    policy: Policy,
    allowlist: Iterable[str],
    repository: str,
    record: PulledRecord | None,
    *,
    is_pulled: bool,
    is_unreadable: bool = False,
) -> Answer:
    """Decide for a present image.

    `is_pulled`: it has a record or an intent. `is_unreadable`: its record or intent is broken. Without another record
    the image is pulled then, under each policy, as by the kubelet.
    """
    if record is None and is_unreadable:
        return "unreadable"
    if not _is_verified(policy, allowlist, repository, is_pulled=is_pulled):
        return "yes"
    if record is None:
        return "no"
    allowed = record.credential_mapping.get(repository)
    if allowed is None:
        return "no"
    if allowed.node_pods_accessible:
        return "recorded"
    return "credentials" if allowed.kubernetes_secrets or allowed.kubernetes_service_accounts else "no"


def _is_verified(policy: Policy, allowlist: Iterable[str], repository: str, *, is_pulled: bool) -> bool:
    match policy:
        case "" | "NeverVerify":
            return False
        case "NeverVerifyPreloadedImages":
            return is_pulled
        case "NeverVerifyAllowlistedImages":
            return not any(_allows(pattern, repository) for pattern in allowlist)
        case "AlwaysVerify":
            return True


def _allows(pattern: str, repository: str) -> bool:
    if pattern.endswith("/*"):
        return repository.startswith(pattern.removesuffix("*"))
    return repository == pattern


def matching_secret(record: PulledRecord, repository: str, secrets: Iterable[PullSecret]) -> PullSecret | None:
    """The first of the pod's Secrets that is in the record, by name or by content; None without any.

    A recorded Secret with new content counts, since its writers are trusted with it. In a record with MOST_SECRETS only
    the content counts, as in the kubelet: new content would not be recorded.
    """
    known = record.credential_mapping.get(repository, PullCredentials()).kubernetes_secrets
    hashes = {one.credential_hash for one in known if one.credential_hash}
    places = {one.where for one in known} if len(known) < MOST_SECRETS else frozenset()
    return next((one for one in secrets if one.credential_hash in hashes or one.where in places), None)


def merged(
    record: PulledRecord | None, image_ref: str, repository: str, allowed: PullCredentials | None, now: float
) -> PulledRecord:
    """The record after a pull or a match; the same object when nothing changes.

    `allowed` None: the credentials of the pull are not known, so the next pod has to pull.
    """
    if record is None:
        return PulledRecord(
            kind="ImagePulledRecord",
            api_version=API_VERSION,
            last_updated_time=_moment(now),
            image_ref=image_ref,
            credential_mapping={repository: allowed} if allowed is not None else {},
        )
    before = record.credential_mapping.get(repository)
    after = _with(before, allowed)
    if after is None or after == before:
        return record
    mapping = {**record.credential_mapping, repository: after}
    return msgspec.structs.replace(record, credential_mapping=mapping, last_updated_time=_moment(now))


def _with(before: PullCredentials | None, new: PullCredentials | None) -> PullCredentials | None:
    if new is None or new == PullCredentials():
        return before
    if before is None or new.node_pods_accessible:
        return before if before is not None and before.node_pods_accessible else new
    if before.node_pods_accessible:
        return before
    by_place = {one.where: one for one in (*before.kubernetes_secrets, *new.kubernetes_secrets)}
    accounts = {*before.kubernetes_service_accounts, *new.kubernetes_service_accounts}
    return PullCredentials(
        kubernetes_secrets=tuple(sorted(by_place.values())), kubernetes_service_accounts=tuple(sorted(accounts))
    )


def pull_credentials(
    used: Credentials | None,
    secrets: Mapping[PullSecret, Credentials],
    accounts: Mapping[Credentials, PullServiceAccount],
) -> PullCredentials:
    """Credentials to record for a pull with `used`.

    `secrets`: content of the pod's Secrets, in the pod's order: the first with this content was tried. `accounts`:
    credentials that only the pod's service account has.
    """
    found = next((one for one, held in secrets.items() if held == used), None)
    if found is not None:
        return PullCredentials(kubernetes_secrets=(found,))
    account = accounts.get(used) if used is not None else None
    if account is not None:
        return PullCredentials(kubernetes_service_accounts=(account,))
    return PullCredentials(node_pods_accessible=True)


def credential_hash(credentials: Credentials) -> str:
    """The kubelet's hash: SHA-256 of the runtime's AuthConfig in Go's JSON."""
    fields = {"username": credentials.username, "password": credentials.password}
    text = json.dumps({name: one for name, one in fields.items() if one}, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def images_of(intents: Iterable[str], names: Iterable[str]) -> list[str]:
    """Intents that concern an image with these names (tags and digests)."""
    known = set(names)
    return [intent for intent in intents if intent in known or _full_name(intent) in known]


def _full_name(image: str) -> str:
    try:
        return image_reference.parse(image).full_name
    except image_reference.InvalidImageName:
        return ""


def is_unknown(record: PulledRecord, present: frozenset[str], before: float) -> bool:
    """True when the image has gone: not among the IDs `present` at the Unix time `before`."""
    return record.image_ref not in present and record.last_updated_time < _moment(before)


def _moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(int(unix_s), UTC)
