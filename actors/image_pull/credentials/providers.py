"""Credential provider plugins: their selection, requests and answers, and a cache of the answers. Pure.

`exec_provider.py` runs them. Source: pkg/credentialprovider/plugin; KEP-4412 for tokens of service accounts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from actors.image_pull.keyring import Credentials, Entries, matches
from actors.image_pull.verification import PullServiceAccount
from proto.common import untrusted
from proto.schema.credential_provider import CredentialProvider, CredentialProviderResponse, TokenAttributes
from proto.v1.scalars.duration import DurationError, parse_seconds

GLOBAL = "global"


class PluginError(Exception):
    """A plugin gave no credentials; the message never holds its standard output."""


class PluginRunError(PluginError):
    """A plugin could not be run, or its run failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A plugin's answer. `key`: the image, registry or GLOBAL that it holds for; `keep_s`: seconds to cache it."""

    entries: Entries
    key: str
    keep_s: float


@dataclass(frozen=True, slots=True)
class Account:
    """A pod's service account for a plugin. Its repr has no token."""

    reference: PullServiceAccount
    annotations: tuple[tuple[str, str], ...]
    token: str = field(repr=False)
    echoed: bool
    """The plugin may return the token as a password: an answer is cached for this token alone."""

    @property
    def key(self) -> Hashable:
        """The holder of cached answers."""
        token = hashlib.sha256(self.token.encode()).digest() if self.echoed else b""
        return self.reference, self.annotations, token


def annotations_for(attributes: TokenAttributes, found: Mapping[str, str]) -> tuple[tuple[str, str], ...] | None:
    """The annotations of a service account for a plugin; None when a required one is missing."""
    required = attributes.required_service_account_annotation_keys
    if any(key not in found for key in required):
        return None
    wanted = {*required, *attributes.optional_service_account_annotation_keys}
    return tuple(sorted((key, value) for key, value in found.items() if key in wanted))


def asked_about(provider: CredentialProvider, repository: str) -> bool:
    """True when one of the provider's matchImages covers the repository."""
    return any(matches(pattern, repository) for pattern in provider.match_images)


def request(provider: CredentialProvider, repository: str, account: Account | None = None) -> bytes:
    """The CredentialProviderRequest for a plugin's standard input, in the version of its configuration."""
    wish: dict[str, object] = {
        "kind": "CredentialProviderRequest",
        "apiVersion": provider.api_version,
        "image": repository,
    }
    if account is not None:
        wish["serviceAccountToken"] = account.token
        if account.annotations:
            wish["serviceAccountAnnotations"] = dict(account.annotations)
    return msgspec.json.encode(wish)


def answer(provider: CredentialProvider, repository: str, output: bytes, account: Account | None = None) -> Answer:
    """Parse a plugin's standard output. Raises PluginError, also for unknown fields and repeated keys."""
    try:
        response = untrusted.decode_json(output, CredentialProviderResponse)
        untrusted.refuse_repeated_keys(output)
    except msgspec.DecodeError:  # its text may hold parts of the output
        raise PluginError("error decoding credential provider plugin response from stdout") from None
    if (response.kind, response.api_version) != ("CredentialProviderResponse", provider.api_version):
        raise PluginError(
            "apiVersion from credential plugin response did not match expected "
            f"apiVersion:{provider.api_version}, actual apiVersion:{response.api_version[:60]}"
        )
    keys = {"Image": repository, "Registry": repository.partition("/")[0], "Global": GLOBAL}
    if response.cache_key_type not in keys:
        raise PluginError(
            f'credential provider plugin did not return a valid cacheKeyType: "{response.cache_key_type[:60]}"'
        )
    duration = response.cache_duration if response.cache_duration is not None else provider.default_cache_duration
    try:
        keep_s = parse_seconds(duration or "0s")
    except DurationError as error:
        raise PluginError(f"cacheDuration: {error}") from error
    entries = {registry: Credentials(one.username, one.password) for registry, one in (response.auth or {}).items()}
    if account is not None and not account.echoed and any(one.password == account.token for one in entries.values()):
        raise PluginError("the plugin returned the service account's token as password, which needs cacheType Token")
    return Answer(entries, keys[response.cache_key_type], keep_s)


@dataclass(slots=True)
class Cache:
    """Valid answers, by provider, service account and key."""

    _kept: dict[tuple[str, Hashable, str], tuple[Entries, float]] = field(default_factory=dict)

    def get(self, provider: str, repository: str, now: float, account: Account | None = None) -> Entries | None:
        """The most specific answer for a repository."""
        for key in (repository, repository.partition("/")[0], GLOBAL):
            kept = self._kept.get((provider, _holder(account), key))
            if kept is not None and now <= kept[1]:
                return kept[0]
        return None

    def put(self, provider: str, answer: Answer, now: float, account: Account | None = None) -> None:
        """Store an answer for its lifetime, and drop expired ones."""
        self._kept = {key: kept for key, kept in self._kept.items() if now <= kept[1]}
        if answer.keep_s > 0:
            self._kept[(provider, _holder(account), answer.key)] = (answer.entries, now + answer.keep_s)


def _holder(account: Account | None) -> Hashable:
    return account.key if account is not None else None


def chosen(providers: Iterable[CredentialProvider], repository: str) -> list[CredentialProvider]:
    """Providers to ask about a repository, in the configuration's order."""
    return [provider for provider in providers if asked_about(provider, repository)]
