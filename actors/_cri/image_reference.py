"""Parses image names: the reference grammar and Docker's short forms.

Covers validity, the registry, and the default tag `latest`, as in the kubelet. Credentials and mirrors are elsewhere.
Source: the grammar of https://github.com/distribution/reference.
"""

import json
import re
from dataclasses import dataclass

DEFAULT_REGISTRY = "docker.io"
DEFAULT_TAG = "latest"
_LEGACY_REGISTRY = "index.docker.io"
_LONGEST_PATH = 255

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(
    rf"(?P<domain>{_DOMAIN})/(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_DIGEST}))?"
)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_HEX_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}


class InvalidImageName(ValueError):
    """The text is no image name. The message is the kubelet's."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed image name."""

    image: str
    """The name as written, with `:latest` without a tag or digest. The runtime is asked for this name."""
    registry: str
    """Host, with port if given; docker.io for short names."""
    repository: str
    """Registry and path without tag and digest, `docker.io/library/busybox`, by which credentials are found."""
    full_name: str = ""
    """As runtimes list it: `docker.io/library/busybox:latest`, or with the digest in place of the tag."""


def parse(image: str) -> Reference:
    """Parse an image name. Raises InvalidImageName."""
    try:
        return _parse(image)
    except ValueError as error:
        name = json.dumps(image, ensure_ascii=False)
        raise InvalidImageName(
            f"Failed to apply default image tag {name}: couldn't parse image name {name}: {error}"
        ) from None


def _parse(image: str) -> Reference:
    if _IDENTIFIER.fullmatch(image):
        raise ValueError(f"invalid repository name ({image}), cannot specify 64-byte hexadecimal strings")
    domain, remainder = _split_domain(image)
    repository = remainder.partition(":")[0]
    if repository.lower() != repository:
        raise ValueError(f"invalid reference format: repository name ({repository}) must be lowercase")
    match = _REFERENCE.fullmatch(f"{domain}/{remainder}")
    if match is None:
        raise ValueError("invalid reference format")
    if len(match["path"]) > _LONGEST_PATH:
        raise ValueError(f"repository name must not be more than {_LONGEST_PATH} characters")
    if match["digest"]:
        _check_digest(match["digest"])
    untagged = match["tag"] is None and match["digest"] is None
    repository = f"{match['domain']}/{match['path']}"
    return Reference(
        image=f"{image}:{DEFAULT_TAG}" if untagged else image,
        registry=match["domain"],
        repository=repository,
        full_name=f"{repository}@{match['digest']}"
        if match["digest"]
        else f"{repository}:{match['tag'] or DEFAULT_TAG}",
    )


def _split_domain(image: str) -> tuple[str, str]:
    """Registry and rest. The part before the first slash is a registry only if it looks like a host."""
    first, slash, rest = image.partition("/")
    if not slash:
        return DEFAULT_REGISTRY, f"library/{image}"
    is_host = first == "localhost" or "." in first or ":" in first or first.lower() != first
    domain, remainder = (first, rest) if is_host else (DEFAULT_REGISTRY, image)
    if domain == _LEGACY_REGISTRY:
        domain = DEFAULT_REGISTRY
    if domain == DEFAULT_REGISTRY and "/" not in remainder:
        remainder = f"library/{remainder}"
    return domain, remainder


def _check_digest(digest: str) -> None:
    algorithm, _, encoded = digest.partition(":")
    length = _HEX_DIGITS.get(algorithm)
    if length is None:
        raise ValueError("unsupported digest algorithm")
    if len(encoded) != length:
        raise ValueError("invalid checksum digest length")
    if encoded.lower() != encoded:
        raise ValueError("invalid checksum digest format")
