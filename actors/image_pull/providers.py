"""Credential provider plugins: their selection, requests and answers, and a cache of the answers. Pure.

`exec_provider.py` runs them. Source: pkg/credentialprovider/plugin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from actors.image_pull.keyring import Credentials, Entries, matches
from proto.common import untrusted
from proto.schema.credential_provider import API_VERSION, CredentialProvider, CredentialProviderResponse
from proto.v1.scalars.duration import DurationError, parse_seconds

GLOBAL = "global"


class PluginError(Exception):
    """A plugin gave no credentials; the message never holds its standard output."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A plugin's answer. `key`: the image, registry or GLOBAL that it holds for; `keep_s`: seconds to cache it."""

    entries: Entries
    key: str
    keep_s: float


def asked_about(provider: CredentialProvider, repository: str) -> bool:
    """True when one of the provider's matchImages covers the repository."""
    return any(matches(pattern, repository) for pattern in provider.match_images)


def request(repository: str) -> bytes:
    """The CredentialProviderRequest for a plugin's standard input."""
    return msgspec.json.encode({"kind": "CredentialProviderRequest", "apiVersion": API_VERSION, "image": repository})


def answer(provider: CredentialProvider, repository: str, output: bytes) -> Answer:
    """Parse a plugin's standard output. Raises PluginError."""
    try:
        response = untrusted.decode_json(output, CredentialProviderResponse)
    except msgspec.DecodeError:  # its text may hold parts of the output
        raise PluginError("error decoding credential provider plugin response from stdout") from None
    if (response.kind, response.api_version) != ("CredentialProviderResponse", API_VERSION):
        raise PluginError(
            "apiVersion from credential plugin response did not match expected "
            f"apiVersion:{API_VERSION}, actual apiVersion:{response.api_version[:60]}"
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
    return Answer(entries, keys[response.cache_key_type], keep_s)


@dataclass(slots=True)
class Cache:
    """Valid answers, by provider and key."""

    _kept: dict[tuple[str, str], tuple[Entries, float]] = field(default_factory=dict)

    def get(self, provider: str, repository: str, now: float) -> Entries | None:
        """The most specific answer for a repository."""
        for key in (repository, repository.partition("/")[0], GLOBAL):
            kept = self._kept.get((provider, key))
            if kept is not None and now <= kept[1]:
                return kept[0]
        return None

    def put(self, provider: str, answer: Answer, now: float) -> None:
        """Store an answer for its lifetime, and drop expired ones."""
        self._kept = {key: kept for key, kept in self._kept.items() if now <= kept[1]}
        if answer.keep_s > 0:
            self._kept[(provider, answer.key)] = (answer.entries, now + answer.keep_s)


def chosen(providers: Iterable[CredentialProvider], repository: str) -> list[CredentialProvider]:
    """Providers to ask about a repository, in the configuration's order."""
    return [provider for provider in providers if asked_about(provider, repository)]
