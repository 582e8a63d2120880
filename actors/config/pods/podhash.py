"""Computes a static pod's UID as the kubelet does, so that changing a node to this agent restarts no container.

The kubelet hashes go-spew's `%#v` print of the internal Pod, with the options of dump.ForHash in
k8s.io/apimachinery/pkg/util; `podhash_types.py` has the Go types. The hash is FNV-1a 128, since Kubernetes 1.35 (pull
request 133511).

A pod gets another UID than from the kubelet in three cases. It has empty lists or maps (`args: []`). It has quantities
such as `0.0Gi`. It has parts that no static pod can use: references to API objects, removed volume plugins.
"""

import re
from typing import Any, NamedTuple

from actors._host.files.hashing import fnv1a_128
from actors.config.pods.podhash_quantity import NotPrintable, printed_quantity
from actors.config.pods.podhash_types import TYPES
from proto import v1
from proto.v1 import Pod

# Fields of the spec that the internal types have in the security context.
_HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
_NUMBERS = frozenset({"int32", "int64", "uint64"})
_MAPS = {"map[string]string": "string", "ResourceList": "resource.Quantity"}
"""Types that are maps, and the types of their values."""
_NIL = "<nil>"


def static_pod_uid(pod: Pod, path: str, node_name: str) -> str:
    """Return the UID of a defaulted pod, 32 hexadecimal digits. Manifest, path and node name determine it."""
    return _digest(pod, f"host:{node_name}file:{path}")


def url_pod_uid(pod: Pod, url: str) -> str:
    """Return the UID of a defaulted pod that came from a URL. Manifest and URL determine it."""
    return _digest(pod, f"url:{url}")


def _digest(pod: Pod, origin: str) -> str:
    try:
        text = printed_pod(pod)
    except NotPrintable:
        text = v1.to_json(pod).decode()
    return f"{fnv1a_128((text + origin).encode()):032x}"


def printed_pod(pod: Pod) -> str:
    """Return the text that the kubelet hashes for a defaulted pod. Raises NotPrintable for types not in the table."""
    plain = v1.to_dict(pod)
    spec = plain.setdefault("spec", {})
    context = spec.setdefault("securityContext", {})
    context.update({name: spec[name] for name in _HOST_FIELDS if name in spec})
    status = plain.get("status", {})
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]
    out: list[str] = []
    _print(out, "*Pod", plain, typed=True)
    return "".join(out)


class _Field(NamedTuple):
    """A field's Go name, Go type and JSON name."""

    name: str
    type: str
    json: str


def _field(name: str, kind: str, json: str = "") -> _Field:
    return _Field(name, kind, json or _json_name(name))


def _json_name(name: str) -> str:
    """Return the JSON name of a Go field: HostIP is hostIP, DNSPolicy is dnsPolicy, TTY is tty."""
    capitals = len(name) - len(name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    lowered = capitals if capitals in (1, len(name)) else capitals - 1
    return name[:lowered].lower() + name[lowered:]


def _structs() -> dict[str, tuple[_Field, ...]]:
    structs = {}
    for group in re.split(r"\n(?=\S)", TYPES.strip()):
        name, _, fields = group.partition(":")
        structs[name] = tuple(_field(*entry.split()) for entry in fields.split(";") if entry.strip())
    return structs


STRUCTS = _structs()
"""Fields by Go type. Made at import, which all children of the forkserver share: it takes 2 ms."""


def _qualified(kind: str) -> str:
    """Return a type's name as reflect prints it."""
    if kind.startswith("*"):
        return "*" + _qualified(kind[1:])
    if kind.startswith("[]"):
        return "[]" + _qualified(kind[2:])
    return f"core.{kind}" if kind[0].isupper() else kind


def _print(out: list[str], kind: str, value: Any, *, typed: bool) -> None:
    """Print a value of the Go type `kind`. `typed`: with its type, which lists and maps imply for their items."""
    if kind.startswith("*"):
        _print_pointer(out, kind, value, typed=typed)
        return
    if typed:
        out.append(f"({_qualified(kind)})")
    if kind.startswith("[]"):
        _print_items(out, kind[2:], value)
    elif kind in _MAPS:
        _print_items(out, _MAPS[kind], value)
    elif kind == "resource.Quantity":
        out.append(printed_quantity(value))
    elif kind == "intstr.IntOrString":
        number, text = (value, "") if isinstance(value, int) else (0, value or "")
        out.append(f"{{Type:(intstr.Type){int(bool(text))} IntVal:(int32){number} StrVal:(string){text}}}")
    elif kind in STRUCTS:
        _print_struct(out, kind, value)
    else:
        _print_scalar(out, kind, value)


def _print_pointer(out: list[str], kind: str, value: Any, *, typed: bool) -> None:
    if value is None:
        out.append(f"({_qualified(kind)}){_NIL}" if typed else _NIL)
        return
    out.append(f"({_qualified(kind)})" if typed else "<*>")
    _print(out, kind[1:], value, typed=False)


def _print_items(out: list[str], kind: str, values: Any) -> None:
    """Print a list, or a map in the order of its keys."""
    if values is None:
        out.append(_NIL)
        return
    keys = sorted(values, key=str.encode) if isinstance(values, dict) else None
    out.append("[" if keys is None else "map[")
    for index, item in enumerate(values if keys is None else keys):
        if index:
            out.append(" ")
        if keys is not None:
            out.append(f"{item}:")
        _print(out, kind, item if keys is None else values[item], typed=False)
    out.append("]")


def _print_struct(out: list[str], kind: str, value: Any) -> None:
    if kind == "v1.Time" and value is not None:
        raise NotPrintable("a time")
    plain = value or {}
    if kind == "ResourceFieldSelector" and plain.get("divisor") == "0":
        plain = plain | {"divisor": None}  # of our defaulting: the kubelet's stays Go's zero value
    out.append("{")
    for index, field in enumerate(STRUCTS[kind]):
        out.append(f" {field.name}:" if index else f"{field.name}:")
        _print(out, field.type, plain if field.json == "." else plain.get(field.json), typed=True)
    out.append("}")


def _print_scalar(out: list[str], kind: str, value: Any) -> None:
    if isinstance(value, dict | list):
        raise NotPrintable(kind)
    if kind in _NUMBERS:
        out.append(str(value or 0))
    elif kind == "bool":
        out.append("true" if value else "false")
    else:
        out.append(value or "")
