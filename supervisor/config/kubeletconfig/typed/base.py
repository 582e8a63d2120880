"""The base of the configuration's structs: JSON names, presence, and the scalar types of the Go fields.

Presence follows the published Go type. A Go pointer, list or map is None when absent, because there an explicit zero
(`0`, `""`, `[]`) differs from nothing. A plain Go value is its zero when absent: for those an explicit zero means the
default, upstream too.
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
"""component-base's TimeOrMetaDuration in nanoseconds; files have a duration string, or a number of nanoseconds."""

Quantity = NewType("Quantity", str)
"""resource.Quantity as its text; files may have a number too."""

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
        return "makeIPTablesUtilChains"  # the one word that is written differently inside a name than at its start
    first, *rest = attribute.split("_")
    return first + "".join(_INITIALISMS.get(part) or part.capitalize() for part in rest)


class ConfigStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=json_name):
    """A struct of the configuration; attributes are the JSON names in snake_case."""
