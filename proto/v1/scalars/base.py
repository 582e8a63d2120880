"""The base class of Kubernetes API records, their JSON names and the shared scalar types.

An absent scalar is None, an absent list `()` and an absent map `{}`. These are not encoded. A struct that is present
but empty (`emptyDir: {}`) stays present. As with Go's `omitempty`, explicit null, `[]` and `{}` for a list or map are
the same as absent.
"""

from typing import Annotated, TypeAlias

import msgspec

_INT32, _INT64 = 1 << 31, 1 << 63

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-_INT32, le=_INT32 - 1)]
"""Go's int32. Checked where a document is read, as the API does."""

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-_INT64, le=_INT64 - 1)]
"""Go's int64."""

IntOrString: TypeAlias = Int32 | str
"""intstr.IntOrString: a port number or a port name; a count or a percentage."""

Quantity: TypeAlias = Int64 | float | str
"""resource.Quantity as in the document: `1`, `0.5`, `100m`, `1Gi`. `quantity.parse` returns its exact value.

An integer beyond 64 bits has to be written as text, since msgpack cannot carry it."""

ResourceList: TypeAlias = dict[str, Quantity]
"""Resource name (`cpu`, `memory`, `hugepages-2Mi`, `example.com/gpu`) to quantity."""

Timestamp: TypeAlias = str
"""metav1.Time or MicroTime: RFC 3339, in UTC, for example `2026-01-02T03:04:05Z`."""

# Parts of a name that Go writes in capitals, except as the first part, which is always lower case.
_INITIALISMS = {
    "api": "API",
    "cidr": "CIDR",
    "cidrs": "CIDRs",
    "fqdn": "FQDN",
    "id": "ID",
    "io": "IO",
    "ip": "IP",
    "ips": "IPs",
    "ipc": "IPC",
    "pid": "PID",
    "uid": "UID",
    "uri": "URI",
    "uuid": "UUID",
    "wwns": "WWNs",
}


def json_name(attribute: str) -> str:
    """Return the JSON name of an attribute: `host_ips` is `hostIPs`, `continue_` is `continue`."""
    first, *rest = attribute.rstrip("_").split("_")
    return first + "".join(_INITIALISMS.get(part) or part.capitalize() for part in rest)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=json_name):
    """A Kubernetes API struct; attributes are the JSON names in snake_case."""
