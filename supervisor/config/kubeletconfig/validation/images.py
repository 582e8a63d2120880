"""Rules of image pulls: their parallelism, and the verification of credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator

from supervisor.config.kubeletconfig.feature_gates import Gates
from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration
from supervisor.config.kubeletconfig.validation.choices import one_of

_POLICIES = ("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify")
_ALLOWLIST = "preloadedImagesVerificationAllowlist"

# An image name without tag and digest in distribution's reference grammar: an optional registry with a port, then path
# components in lower case.
_HOST_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY = rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"(?:{_REGISTRY}/)?{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)
_MAX_NAME = 255


def rules(config: KubeletConfiguration, gates: Gates) -> Iterator[Problem]:
    """Violations in the image fields."""
    parallel = config.max_parallel_image_pulls
    if config.serialize_image_pulls and parallel is not None and parallel > 1:
        problem = f"must not be larger than 1 unless serializeImagePulls is false, not {parallel}"
        yield Problem("maxParallelImagePulls", problem)
    if not gates.enabled("KubeletEnsureSecretPulledImages"):
        return
    policy, allowlist = (
        config.image_pull_credentials_verification_policy,
        config.preloaded_images_verification_allowlist,
    )
    yield from one_of("imagePullCredentialsVerificationPolicy", policy, _POLICIES)
    if allowlist and policy != "NeverVerifyAllowlistedImages":
        problem = f"needs imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages, not {policy[:60]}"
        yield Problem(_ALLOWLIST, problem)
        return
    for index, pattern in enumerate(allowlist or ()):
        if reason := _bad_pattern(pattern):
            yield Problem(f"{_ALLOWLIST}[{index}]", f"{pattern[:60]!r} {reason}")


def _bad_pattern(pattern: str) -> str:
    if pattern != pattern.strip():
        return "must not begin or end with spaces"
    name = pattern.removesuffix("*") if pattern.endswith("/*") else pattern
    if "*" in name:
        return "is not a pattern: the only wildcard is /* at the end"
    if pattern.endswith("/*"):
        return "" if len(name) > 1 else "must name at least a registry before /*"
    return _bad_name(name)


def _bad_name(name: str) -> str:
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        return "must be an image's full name, such as registry.example/team/app, without tag or digest"
    first, _, rest = name.partition("/")
    # A reference without registry is completed to docker.io/library/..., so the pattern would never match.
    if not rest or not ("." in first or ":" in first or first == "localhost"):
        return "must begin with the registry, as in docker.io/library/busybox"
    if first == "docker.io" and "/" not in rest:
        return f"must be the full name docker.io/library/{rest}"
    return ""
