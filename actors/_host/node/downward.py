"""The downward API: fields of a pod and resources of its containers as text. Pure.

Covers fieldRef and resourceFieldRef of environment variables and downwardAPI volumes. Source:
https://kubernetes.io/docs/concepts/workloads/pods/downward-api/, pkg/fieldpath, and defaultPodLimitsForDownwardAPI of
pkg/kubelet/kubelet_resources.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proto.v1 import Container, Pod, ResourceFieldSelector
from proto.v1.scalars.quantity import parse

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)
_KEY = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
"""A label's key. An annotation's key may also have capital letters before the slash."""


class NoSuchFieldError(Exception):
    """A field path or resource that the downward API does not have."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The node facts that the downward API exposes."""

    name: str = ""
    host_ips: tuple[str, ...] = ()
    allocatable: Mapping[str, int | str] = field(default_factory=dict)
    """`cpu`, `memory` and `ephemeral-storage` as quantities: the value of a limit that container and pod lack."""


def default_limits(allocatable: Mapping[str, int]) -> dict[str, int | str]:
    """Return NodeFacts.allocatable for a node's allocatable amounts, with `cpu` in thousandths of a core."""
    whole = {name: allocatable.get(name, 0) for name in ("memory", "ephemeral-storage")}
    return {"cpu": f"{allocatable['cpu']}m"} | whole


def field_value(pod: Pod, path: str, node: NodeFacts, pod_ips: tuple[str, ...]) -> str:
    """Return the value of a field path. All labels or annotations are `key="value"` lines. Raises NoSuchFieldError."""
    meta, spec = pod.metadata, pod.spec
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is not None:
        field, key = subscript.groups()
        if not _KEY.fullmatch(key if field == "labels" else key.lower()):
            raise NoSuchFieldError(f"invalid key subscript in {path}")
        return (meta.labels if field == "labels" else meta.annotations).get(key, "")
    values: dict[str, Callable[[], str]] = {
        "metadata.name": lambda: meta.name,
        "metadata.namespace": lambda: meta.namespace,
        "metadata.uid": lambda: meta.uid,
        "metadata.labels": lambda: format_map(meta.labels),
        "metadata.annotations": lambda: format_map(meta.annotations),
        "spec.nodeName": lambda: spec.node_name or node.name,
        "spec.host": lambda: spec.node_name or node.name,  # its former name, which Kubernetes still takes
        "spec.serviceAccountName": lambda: spec.service_account_name or "",
        "status.hostIP": lambda: ",".join(node.host_ips[:1]),
        "status.hostIPs": lambda: ",".join(node.host_ips),
        "status.podIP": lambda: ",".join(pod_ips[:1]),
        "status.podIPs": lambda: ",".join(pod_ips),
    }
    if path not in values:
        raise NoSuchFieldError(f"unsupported fieldPath: {path}")
    if path.startswith("status.hostIP") and not node.host_ips:
        raise NoSuchFieldError("host IP unknown: the Node has no address yet")
    return values[path]()


def format_map(values: Mapping[str, str]) -> str:
    """Return sorted lines of `key="value"`, quoted like %q in Go."""
    return "\n".join(f"{key}={_quoted(values[key])}" for key in sorted(values))


_ESCAPES = {"\\": "\\\\", '"': '\\"'} | {c: f"\\{name}" for c, name in zip("\a\b\f\n\r\t\v", "abfnrtv", strict=True)}


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(character) or _printable(character) for character in text) + '"'


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def resource_value(pod: Pod, own: Container, selector: ResourceFieldSelector, node: NodeFacts) -> str:
    """Return a request or limit divided by the divisor, rounded up. Raises NoSuchFieldError.

    A limit that is missing or zero is the pod's own (KEP-2837), or else the node's allocatable amount: zero limits
    nothing. A request is the container's alone.
    """
    container = _named(pod, selector.container_name, own)
    kind, _, resource = selector.resource.partition(".")
    if kind not in ("limits", "requests") or not resource:
        raise NoSuchFieldError(f"unsupported container resource : {selector.resource}")
    chosen = container.resources.limits if kind == "limits" else container.resources.requests
    amount = parse(chosen.get(resource, 0))
    if kind == "limits" and not amount:
        amount = _pod_limit(pod, resource) or parse(node.allocatable.get(resource, 0))
    divisor = parse(selector.divisor or "1") or parse("1")
    return str(-(-amount // divisor))


def _pod_limit(pod: Pod, resource: str) -> int:
    # Huge pages can have a limit of the pod, too, but limits of containers have no default then.
    own = pod.spec.resources
    return parse(own.limits.get(resource, 0)) if own is not None and resource in ("cpu", "memory") else parse(0)


def _named(pod: Pod, name: str | None, own: Container) -> Container:
    if not name or name == own.name:
        return own
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name == name:
            return container
    raise NoSuchFieldError(f"container {name} not found")
