"""The supported kinds of objects, and the rules for names. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from proto import v1
from proto.v1 import cluster


class Kind(NamedTuple):
    """One kind: its API version, its scope and its record type."""

    api_version: str
    namespaced: bool
    record: type[v1.Record]


KINDS: dict[str, Kind] = {
    "ConfigMap": Kind("v1", True, v1.ConfigMap),
    "Secret": Kind("v1", True, v1.Secret),
    "Service": Kind("v1", True, cluster.Service),
    "PersistentVolume": Kind("v1", False, cluster.PersistentVolume),
    "PersistentVolumeClaim": Kind("v1", True, cluster.PersistentVolumeClaim),
    "PriorityClass": Kind("scheduling.k8s.io/v1", False, cluster.PriorityClass),
    "CSIDriver": Kind("storage.k8s.io/v1", False, cluster.CSIDriver),
    "VolumeAttachment": Kind("storage.k8s.io/v1", False, cluster.VolumeAttachment),
    "RuntimeClass": Kind("node.k8s.io/v1", False, cluster.RuntimeClass),
    "ResourceClaim": Kind("resource.k8s.io/v1", True, cluster.ResourceClaim),
}
LIST_KINDS = frozenset({"List", *(f"{kind}List" for kind in KINDS)})
DEFAULT_NAMESPACE = "default"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_KEY = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
_LABEL_RULE = "must be lower case letters, digits or '-', with a letter or digit at both ends, at most 63 characters"
_NAME_RULE = (
    "must be lower case letters, digits, '-' or '.', with a letter or digit at both ends, at most 253 characters"
)


def supported() -> str:
    """All kinds, for a message."""
    return ", ".join(sorted(KINDS))


def name_problem(kind: str, name: str) -> str:
    """Problem with an object's name, or ""."""
    if not name:
        return "Required value: name is needed"
    if kind in ("Service", "RuntimeClass"):
        return "" if _is_label(name) or (kind == "RuntimeClass" and _is_subdomain(name)) else _LABEL_RULE
    return "" if _is_subdomain(name) else _NAME_RULE


def namespace_problem(kind: str, namespace: str) -> str:
    """Problem with an object's namespace, or ""."""
    if not KINDS[kind].namespaced:
        return f"a {kind} is in no namespace; leave it out" if namespace else ""
    return "" if not namespace or _is_label(namespace) else _LABEL_RULE


def key_problem(key: str) -> str:
    """Problem with a key of a ConfigMap or Secret, or ""."""
    if len(key) > 253 or not _KEY.fullmatch(key):
        return "a key must be letters, digits, '-', '_' or '.', at most 253 characters"
    if key in (".", "..") or key.startswith(".."):
        return "a key must not be '.' or begin with '..'"
    return ""


def _is_label(text: str) -> bool:
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def _is_subdomain(text: str) -> bool:
    return len(text) <= 253 and all(_LABEL.fullmatch(part) for part in text.split("."))
