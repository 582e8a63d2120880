"""Reads the file of --image-credential-provider-config and defines the answers of credential provider plugins.

The types are CredentialProviderConfig of kubelet.config.k8s.io and the response of
credentialprovider.kubelet.k8s.io, whose versions have the same fields. Source: https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/.
tokenAttributes: KEP-4412.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from proto.v1.scalars.base import Record
from proto.v1.scalars.duration import DurationError, parse_seconds

CONFIG_KIND = "CredentialProviderConfig"
CONFIG_VERSIONS = tuple(f"kubelet.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
API_VERSION = "credentialprovider.kubelet.k8s.io/v1"
API_VERSIONS = (API_VERSION, "credentialprovider.kubelet.k8s.io/v1alpha1", "credentialprovider.kubelet.k8s.io/v1beta1")
"""The versions of requests and answers. A provider's configuration names its own."""
MAX_BYTES = 1024 * 1024
_ANNOTATION = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?")
_PORT = re.compile(r"(?::[0-9]*)?", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EXTENSIONS = (".json", ".yaml", ".yml")


class ExecEnvVar(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An environment variable for a plugin, in addition to the agent's."""

    name: str
    value: str


class TokenAttributes(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The service account token for a plugin."""

    service_account_token_audience: str = ""
    cache_type: Literal["", "ServiceAccount", "Token"] = ""
    """Answers are cached for a service account, or for one token of it. Token is for plugins that return the token."""
    require_service_account: bool | None = None
    """False: the plugin is also asked for pods without a service account, without a token then."""
    required_service_account_annotation_keys: tuple[str, ...] = ()
    """Annotations for the plugin. It is not asked for a service account that lacks one of them."""
    optional_service_account_annotation_keys: tuple[str, ...] = ()


class CredentialProvider(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plugin: the name of its program, and the images that it has credentials for."""

    name: str
    match_images: tuple[str, ...] = ()
    default_cache_duration: str | None = None
    """A Go duration, for answers without one."""
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecEnvVar, ...] | None = None
    token_attributes: TokenAttributes | None = None


class CredentialProviderConfig(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    api_version: str = ""
    kind: str = ""
    providers: tuple[CredentialProvider, ...] = ()


class AuthConfig(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Credentials for one registry."""

    username: str = ""
    password: str = ""


class CredentialProviderResponse(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plugin's answer. The kubelet decodes it strictly."""

    api_version: str = ""
    kind: str = ""
    cache_key_type: str = ""
    """Image, Registry or Global: the scope of the answer."""
    cache_duration: str | None = None
    """A Go duration. `0s`: do not cache; None: the provider's default."""
    auth: dict[str, AuthConfig] | None = None


class ProviderConfigError(Exception):
    """An unusable configuration. The message names file and field."""


def load(path: str, bin_dir: str) -> tuple[CredentialProvider, ...]:
    """The providers of a file, or of a directory's files in lexical order. Raises ProviderConfigError. Loads YAML."""
    if not path and not bin_dir:
        return ()
    if not path or not bin_dir:
        raise ProviderConfigError(
            "--image-credential-provider-config and --image-credential-provider-bin-dir need each other"
        )
    providers: list[CredentialProvider] = []
    for file in _files(path):
        for provider in _read(file).providers:
            if any(provider.name == other.name for other in providers):
                raise ProviderConfigError(f"{file}: providers: the name {provider.name!r} is there twice")
            problem = next(_problems(provider), None)
            if problem:
                raise ProviderConfigError(f"{file}: providers[{provider.name}]: {problem}")
            if not os.access(os.path.join(bin_dir, provider.name), os.X_OK):
                raise ProviderConfigError(f"plugin binary executable {bin_dir}/{provider.name} did not exist")
            providers.append(provider)
    if not providers:
        raise ProviderConfigError(f"{path}: providers: Required value: at least 1 item in plugins is required")
    return tuple(providers)


def _files(path: str) -> list[str]:
    try:
        if not os.path.isdir(path):
            return [path]
        found = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(_EXTENSIONS)]
    except OSError as error:
        raise ProviderConfigError(f"cannot read {path}: {error.strerror}") from error
    if not found:
        raise ProviderConfigError(f'no configuration files found in directory "{path}"')
    return found


def _read(file: str) -> CredentialProviderConfig:
    from proto.schema.document import DocumentError, Limits, parse  # noqa: PLC0415 - loads YAML
    from proto.schema.fieldpath import field_text  # noqa: PLC0415

    try:
        with open(file, "rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        value = parse(content, Limits(MAX_BYTES, "a configuration", f"a {CONFIG_KIND}")).value
        config = msgspec.convert(_without_nulls(value), CredentialProviderConfig)
    except OSError as error:
        raise ProviderConfigError(f"cannot read {file}: {error.strerror}") from error
    except DocumentError as error:
        where = f":{error.line}" if error.line else ""
        raise ProviderConfigError(f"{file}{where}: {field_text(error.path)} {error.problem}") from error
    except msgspec.ValidationError as error:
        raise ProviderConfigError(f"{file}: {error}") from error
    if config.kind != CONFIG_KIND or config.api_version not in CONFIG_VERSIONS:
        raise ProviderConfigError(f"{file}: must be a {CONFIG_KIND} of {CONFIG_VERSIONS[0]}")
    return config


def _without_nulls(value: Any) -> Any:
    """The values without fields that are null: as in Go, such a field is not set. An empty `args:` is null in YAML."""
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _problems(provider: CredentialProvider) -> Iterator[str]:
    if not provider.name or provider.name in (".", "..") or "/" in provider.name or " " in provider.name:
        yield "name: must be the name of a file, without '/' and spaces"
    if not provider.api_version:
        yield "apiVersion: Required value"
    elif provider.api_version not in API_VERSIONS:
        known = ", ".join(API_VERSIONS)
        yield f"apiVersion: Unsupported value: {provider.api_version[:60]!r}: supported values: {known}"
    if not provider.match_images:
        yield "matchImages: Required value: at least 1 item in matchImages is required"
    wrong = ((pattern, pattern_problem(pattern)) for pattern in provider.match_images)
    yield from (f"matchImages: Invalid value: {one[:60]!r}: match image is invalid: {why}" for one, why in wrong if why)
    if provider.default_cache_duration is None:
        yield "defaultCacheDuration: Required value"
    else:
        try:
            if parse_seconds(provider.default_cache_duration) < 0:
                yield "defaultCacheDuration: must be greater than or equal to 0"
        except DurationError as error:
            yield f"defaultCacheDuration: {error}"
    if provider.token_attributes is not None:
        if provider.api_version != API_VERSION:  # the other versions have no field for a token
            yield f"tokenAttributes: Forbidden: tokenAttributes is only supported for {API_VERSION} API version"
        for problem in _token_problems(provider.token_attributes):
            yield f"tokenAttributes.{problem}"


def pattern_problem(pattern: str) -> str:
    """The reason why a pattern of matchImages is no URL without a scheme, as in Go; empty when it is one."""
    address, _, fragment = pattern.partition("#")
    address = address.partition("?")[0]
    host = address.partition("/")[0].rpartition("@")[2]
    # Only a bracket at the beginning holds an IPv6 address; `*.r[0-9].io` is a glob.
    ending = host.rpartition("]")[2] if host.startswith("[") else host[host.rfind(":") :] if ":" in host else ""
    if _CONTROL.search(pattern):
        return "invalid control character in URL"
    if _BAD_ESCAPE.search(address) or _BAD_ESCAPE.search(fragment):
        return "invalid URL escape"
    if " " in host:
        return 'invalid character " " in host name'
    if host.startswith("[") and "]" not in host:
        return "missing ']' in host"
    return "" if _PORT.fullmatch(ending) else f"invalid port {ending[:60]!r} after host"


def _token_problems(attributes: TokenAttributes) -> Iterator[str]:
    required = attributes.required_service_account_annotation_keys
    optional = attributes.optional_service_account_annotation_keys
    if not attributes.service_account_token_audience:
        yield "serviceAccountTokenAudience: Required value"
    if not attributes.cache_type:
        yield "cacheType: Required value: ServiceAccount or Token"
    if attributes.require_service_account is None:
        yield "requireServiceAccount: Required value"
    elif not attributes.require_service_account and required:
        yield "requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount is false"
    for field, keys in (("required", required), ("optional", optional)):
        for key in keys:
            if not _ANNOTATION.fullmatch(key.lower()):
                yield f"{field}ServiceAccountAnnotationKeys: Invalid value: {key[:60]!r}: must be an annotation's key"
            if keys.count(key) > 1:
                yield f"{field}ServiceAccountAnnotationKeys: Duplicate value: {key[:60]!r}"
    if both := sorted({*required} & {*optional}):
        yield f"requiredServiceAccountAnnotationKeys: {both[0][:60]!r} cannot be both required and optional"
