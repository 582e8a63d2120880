"""The base class of the configuration's structs, their JSON names, and the scalar types of the Go fields.

An absent field of a Go pointer, list or map type is None, because its explicit zero (`0`, `""`, `[]`) has a meaning.
An absent field of another Go type is its zero. For these, an explicit zero means the default, as in the kubelet.
"""

from __future__ import annotations

from typing import NewType

import msgspec

Int32 = NewType("Int32", int)
UInt32 = NewType("UInt32", int)
Int64 = NewType("Int64", int)

Duration = NewType("Duration", int)
"""metav1.Duration in nanoseconds; a Go duration string in files."""

TimeOrDuration = NewType("TimeOrDuration", int)
"""component-base's TimeOrMetaDuration in nanoseconds. In files it is a duration or a number of nanoseconds."""

Quantity = NewType("Quantity", str)
"""resource.Quantity as text. In files it may be a number."""

_INITIALISMS = {
    "api": "API",
    "ca": "CA",
    "cfs": "CFS",
    "cidr": "CIDR",
    "cpus": "CPUs",
    "dns": "DNS",
    "gc": "GC",
    "id": "ID",
    "ip": "IP",
    "oom": "OOM",
    "qos": "QOS",
    "qps": "QPS",
    "tls": "TLS",
    "ttl": "TTL",
    "url": "URL",
}


def json_name(attribute: str) -> str:
    """The published name of an attribute: `image_gc_high_threshold_percent` is `imageGCHighThresholdPercent`."""
    if attribute == "make_iptables_util_chains":
        return "makeIPTablesUtilChains"  # the only word that is spelt differently at the start of a name
    first, *rest = attribute.split("_")
    return first + "".join(_INITIALISMS.get(part) or part.capitalize() for part in rest)


class ConfigStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=json_name):
    """A struct of the configuration; attributes are the JSON names in snake_case."""
