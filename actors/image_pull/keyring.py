"""Parses Docker configurations, and selects their credentials for an image. Pure.

Covers Secrets of the types dockerconfigjson and dockercfg, the node's files, matching and order. As in Go's
encoding/json, field names match without case, and the last value counts unless it is null. Source:
pkg/credentialprovider of Kubernetes (keyring.go, config.go); https://kubernetes.io/docs/concepts/containers/images/.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from proto.common import untrusted
from proto.pods.objects import ApiObject

DOCKER_CONFIG_JSON = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson")
DOCKER_CFG = ("kubernetes.io/dockercfg", ".dockercfg")
_DEFAULT_REGISTRY = "index.docker.io"
_DEFAULT_NAMES = frozenset({"docker.io", _DEFAULT_REGISTRY})

MOST_ENTRIES = 1000
"""Entries of one configuration that are looked at. The text of a Secret holds some 60,000."""
LONGEST_KEY = 253 + len(":65535") + 1024
"""Characters of a DNS name, a port and a path. A longer key or repository matches nothing."""
_MOST_SHOWN = 100
_TEXTS = ("username", "password", "email", "auth")
"""Fields of an entry that must be text."""


class Credentials(NamedTuple):
    """User and password for a registry; never shown."""

    username: str
    password: str

    def __repr__(self) -> str:
        return "Credentials(...)"

    @property
    def is_utf8(self) -> bool:
        """False for bytes that CRI cannot carry; they are kept as surrogate escapes."""
        return not any("\udc80" <= character <= "\udcff" for character in self.username + self.password)


class KeyringError(Exception):
    """A Docker configuration is invalid; the message never holds its content."""


Entries = Mapping[str, Credentials]
"""Credentials by registry as written: host, host/path or URL, with wildcards.

The readers return one entry more than MOST_ENTRIES when there are more, see `has_more`.
"""

Read = Callable[[bytes], Entries]


def docker_config_json(content: bytes) -> Entries:
    """Entries of a config.json, under `auths`. Raises KeyringError."""
    registries: dict[str, Any] = {}
    for name, value in _object(content).items():
        if name.lower() != "auths":
            continue
        if value is None:
            registries.clear()
        elif isinstance(value, dict):
            registries.update(value)
        else:
            raise KeyringError("must be a JSON object of registries")
    return _entries(registries)


def docker_cfg(content: bytes) -> Entries:
    """Entries of a .dockercfg, its whole content. Raises KeyringError."""
    return _entries(_object(content))


def secret_entries(secret: ApiObject) -> Entries:
    """Entries of a pull Secret; none for a Secret of another type. Raises KeyringError."""
    for (kind, key), read in ((DOCKER_CONFIG_JSON, docker_config_json), (DOCKER_CFG, docker_cfg)):
        content = secret.data.get(key, b"")
        if secret.secret_type == kind and content:
            return read(content)
    return {}


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = untrusted.decode_json(content)
    except msgspec.DecodeError:
        raise KeyringError("not JSON") from None
    if not isinstance(value, dict):
        raise KeyringError("must be a JSON object")
    return value


def _entries(plain: dict[str, Any]) -> dict[str, Credentials]:
    read = itertools.islice(plain.items(), MOST_ENTRIES + 1)
    return {registry: _credentials(registry[:_MOST_SHOWN], entry) for registry, entry in read}


def has_more(entries: Entries) -> bool:
    """True when the configuration has more entries than a Keyring looks at."""
    return len(entries) > MOST_ENTRIES


def _credentials(registry: str, entry: Any) -> Credentials:
    if entry is not None and not isinstance(entry, dict):
        raise KeyringError(f"the entry of {registry} must be a JSON object")
    texts = dict.fromkeys(_TEXTS, "")
    for name, value in (entry or {}).items():
        if (field := name.lower()) not in texts or value is None:
            continue
        if not isinstance(value, str):
            raise KeyringError(f"the entry of {registry} must hold text")
        texts[field] = value
    if texts["auth"]:
        return Credentials(*_decoded(registry, texts["auth"]))
    return Credentials(texts["username"], texts["password"])


def _decoded(registry: str, auth: str) -> tuple[str, str]:
    # `auth` is base64 of USER:PASSWORD, padded or not, perhaps in several lines, as Go's decoder takes it.
    auth = auth.replace("\r", "").replace("\n", "")
    try:
        text = base64.b64decode(auth + "=" * (-len(auth) % 4), validate=True).decode(errors="surrogateescape")
    except (binascii.Error, ValueError):
        raise KeyringError(f"the auth of {registry} must be formatted as base64(username:password)") from None
    username, colon, password = text.partition(":")
    if not colon:
        raise KeyringError(f"the auth of {registry} must be formatted as base64(username:password)")
    return username, password


class Keyring:
    """The first MOST_ENTRIES entries of each configuration; more specific entries come first."""

    def __init__(self, configurations: Iterable[Entries] = ()) -> None:
        self._by_key: dict[str, list[Credentials]] = {}
        for entries in configurations:
            for registry, credentials in itertools.islice(entries.items(), MOST_ENTRIES):
                key = _key(registry)
                if key is not None:
                    self._by_key.setdefault(key, []).append(credentials)

    def lookup(self, repository: str) -> list[Credentials]:
        """Credentials to try for a repository (`registry/path`, no tag), in order.

        Without a match, entries of Docker Hub's old name hold for Docker Hub.
        """
        found: list[Credentials] = []
        for key in sorted(self._by_key, reverse=True):  # a longer path comes before its registry
            if matches(key, repository):
                found += self._by_key[key]
        if not found and _is_default(repository):
            found = self._by_key.get(_DEFAULT_REGISTRY, [])
        return found


def lookup(keyrings: Iterable[Keyring], repository: str) -> tuple[Credentials, ...]:
    """Credentials of several keyrings, in order, without duplicates."""
    found = (one for keyring in keyrings for one in keyring.lookup(repository))
    return tuple(dict.fromkeys(found))


def matches(pattern: str, repository: str) -> bool:
    """True when an entry's key or a provider's matchImages covers a repository; both without scheme.

    The ports are equal, the hosts have equally many parts (`*` matches within a part), and the repository's path begins
    with the pattern's.
    """
    if max(len(pattern), len(repository)) > LONGEST_KEY:
        return False
    try:
        wanted, target = urlsplit(f"//{pattern}"), urlsplit(f"//{repository}")
        if (wanted.port, len(_parts(wanted))) != (target.port, len(_parts(target))):
            return False
    except ValueError:
        return False
    if not target.path.startswith(wanted.path):
        return False
    return all(_covers(part, host) for part, host in zip(_parts(wanted), _parts(target), strict=True))


def _covers(pattern: str, part: str) -> bool:
    """True when `pattern`, with `*` for any characters, covers the whole part of a host.

    No regular expression: a pod's Secret has the pattern, and fnmatch takes seconds to compile a hostile one.
    Upstream's filepath.Match also knows `?` and `[a-z]`, which `urlsplit` leaves in no host's name.
    """
    first, *others = pattern.split("*")
    if not others:
        return pattern == part
    *middle, last = others
    if len(part) < len(first) + len(last) or not (part.startswith(first) and part.endswith(last)):
        return False
    at, end = len(first), len(part) - len(last)
    for piece in middle:  # the leftmost place leaves most for the pieces after it
        found = part.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _parts(url: Any) -> list[str]:
    host = url.netloc.rpartition("@")[2]
    return str(host.rpartition(":")[0].strip("[]") if url.port is not None else host).split(".")


def _key(registry: str) -> str | None:
    # HOST or HOST/PATH, without scheme and Docker's former API versions; None for an invalid URL and a long one.
    if len(registry) > LONGEST_KEY:
        return None
    try:
        url = urlsplit(registry if registry.startswith(("https://", "http://")) else f"https://{registry}")
    except ValueError:
        return None
    path = url.path[3:] if url.path.startswith(("/v1/", "/v2/")) else url.path
    return url.netloc + (path if path != "/" else "")


def _is_default(repository: str) -> bool:
    first, slash, _ = repository.partition("/")
    return bool(first) and (not slash or first in _DEFAULT_NAMES or not any(mark in first for mark in ".:"))
