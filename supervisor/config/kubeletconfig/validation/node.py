"""Rules of the node's taints and labels, and of the sysctls that pods may set.

`check_labels` and `check_node_ip` are for flags without a field. Source: https://kep.k8s.io/279 and
https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration
from supervisor.config.kubeletconfig.validation.network import is_domain

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SYSCTL_PART = r"[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?"
_SYSCTL = re.compile(rf"(?:{_SYSCTL_PART}[./])*(?:{_SYSCTL_PART}|(?:[a-z0-9][-_a-z0-9]*)?\*)", re.ASCII)
_MAX_SYSCTL = 253
_NAMESPACED = ("kernel.shm", "kernel.msg", "fs.mqueue.", "net.")

_OWN_LABELS = frozenset(
    [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
    ]
)
_OWN_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESERVED_NAMESPACES = ("kubernetes.io", "k8s.io")


def rules(config: KubeletConfiguration) -> Iterator[Problem]:
    """Violations in taints and sysctls."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(config.register_with_taints or ()):
        here = f"registerWithTaints[{index}]"
        if reason := bad_key(taint.key):
            yield Problem(f"{here}.key", reason)
        if reason := bad_value(taint.value):
            yield Problem(f"{here}.value", reason)
        if taint.effect not in _EFFECTS:
            yield Problem(f"{here}.effect", f"must be one of {', '.join(_EFFECTS)}, not {taint.effect[:60]!r}")
        if taint.time_added is not None:
            yield Problem(f"{here}.timeAdded", "must not be set: it is the node controller's")
        if (taint.key, taint.effect) in seen:
            yield Problem(here, f"{taint.key[:60]}:{taint.effect} is there twice; remove one")
        seen.add((taint.key, taint.effect))
    for index, pattern in enumerate(config.allowed_unsafe_sysctls or ()):
        if len(pattern) > _MAX_SYSCTL or not _SYSCTL.fullmatch(pattern):
            problem = f"must be a sysctl such as kernel.sem, or a pattern that ends in *, not {pattern[:60]!r}"
            yield Problem(f"allowedUnsafeSysctls[{index}]", problem)
        elif not _namespaced(pattern):
            own = ", ".join(("kernel.sem", *(f"{prefix}*" for prefix in _NAMESPACED)))
            problem = f"{pattern[:60]} is not namespaced; pods can only set {own}"
            yield Problem(f"allowedUnsafeSysctls[{index}]", problem)


def _namespaced(pattern: str) -> bool:
    """True when all sysctls of a pattern are in a pod's IPC or network namespace."""
    name = pattern.replace("/", ".").removesuffix("*")
    return name == "kernel.sem" or name.startswith(_NAMESPACED)


def check_labels(labels: Mapping[str, str], source: str = "--node-labels") -> list[Problem]:
    """Errors of a node's labels. `source` is the flag's name for the problems."""
    found = []
    for key, value in labels.items():
        reason = bad_key(key) or bad_value(value) or _forbidden(key)
        if reason:
            found.append(Problem(key[:100], reason, source))
    return found


def check_node_ip(text: str) -> list[Problem]:
    """Errors of --node-ip. Unlike the kubelet, which ignores what is no address, this agent refuses it."""
    import ipaddress  # noqa: PLC0415 - most starts do not need it

    try:
        found = [ipaddress.ip_address(part.strip()) for part in text.split(",")] if text else []
    except ValueError as error:
        return [Problem("", f"must be an IP address, or one IPv4 and one IPv6 address: {error}", "--node-ip")]
    if len(found) > 2 or len({one.version for one in found}) < len(found):
        return [Problem("", "must be one IP address, or one IPv4 and one IPv6 address", "--node-ip")]
    if len(found) == 2 and any(one.is_unspecified for one in found):
        return [Problem("", "must not have 0.0.0.0 or :: in a pair", "--node-ip")]
    return []


def bad_key(key: str) -> str:
    """The reason why a text is not a qualified name (`example.com/role`); empty when it is."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return f"{key[:60]!r} must be a name of letters, digits, -, _ and ., at most 63, as in example.com/role"
    if slash and not (is_domain(prefix) and prefix == prefix.lower() and not prefix.endswith(".")):
        return f"{key[:60]!r} must have a DNS domain in lower case before the slash, as in example.com/role"
    return ""


def bad_value(value: str) -> str:
    """The reason why a text is not a label's value; empty when it is."""
    if not value or _NAME.fullmatch(value):
        return ""
    return (
        f"{value[:60]!r} must be empty or letters, digits, -, _ and ., at most 63, with a letter or digit at both ends"
    )


def _forbidden(key: str) -> str:
    namespace = key.rpartition("/")[0]
    if not _within(namespace, _RESERVED_NAMESPACES) or key in _OWN_LABELS or _within(namespace, _OWN_NAMESPACES):
        return ""
    return (
        f"the namespace {namespace} is the cluster's: a node may set labels of kubelet.kubernetes.io and "
        f"node.kubernetes.io, and {', '.join(sorted(_OWN_LABELS))}"
    )


def _within(namespace: str, parents: tuple[str, ...]) -> bool:
    return any(namespace == parent or namespace.endswith(f".{parent}") for parent in parents)
