"""The base of every Kubernetes API record here: JSON names, presence rules and the shared scalar types.

Covers how a Go field name of k8s.io/api becomes a Python attribute and back. Does not cover any one type, nor encoding
(`codec.py`).

A scalar that is absent is None, a list `()`, a map `{}`; none of these is encoded again. A struct that is present but
empty (`emptyDir: {}`) stays present. Explicit null, `[]` and `{}` for a list or map read as absent, as Go's
`omitempty` has it.
"""

from typing import TypeAlias

import msgspec

IntOrString: TypeAlias = int | str
"""intstr.IntOrString: a port number or a port name; a count or a percentage."""

Quantity: TypeAlias = int | float | str
"""resource.Quantity as the document had it (`1`, `0.5`, `100m`, `1Gi`); `quantity.parse` gives its exact value."""

ResourceList: TypeAlias = dict[str, Quantity]
"""Resource name (`cpu`, `memory`, `hugepages-2Mi`, `example.com/gpu`) to quantity."""

Timestamp: TypeAlias = str
"""metav1.Time or MicroTime: RFC 3339, in UTC, for example `2026-01-02T03:04:05Z`."""

# Parts of a name that Go writes in capitals when they are not the first part. A first part is always lower case.
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
