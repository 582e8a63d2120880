"""Turns the flags and the file of a kubelet 1.20 into those of a kubelet 1.36."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GONE_FLAGS = frozenset(
    {
        "container-runtime",
        "network-plugin",
        "cni-bin-dir",
        "cni-conf-dir",
        "cni-cache-dir",
        "dynamic-config-dir",
        "logtostderr",
    }
)
"""Flags that the suite gives and the kubelet has no longer. They concern dockershim, dynamic configuration, klog."""
GONE_FIELDS = frozenset({"logging"})
"""Fields that have another shape now, and that no spec is about."""
_SWITCHES = frozenset({"logtostderr"})


def flags(arguments: Sequence[str]) -> dict[str, str]:
    """The flags by name without those that are gone: `--NAME VALUE` or `--NAME=VALUE`, the last one counts."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).removeprefix("--").partition("=")
        if not equals and name not in _SWITCHES:
            value = rest.pop(0)
        if name not in GONE_FLAGS:
            found[name] = value
    return found


def config(older: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The file that the agent gets: the suite's fields that there still are, then `own`."""
    return {name: value for name, value in older.items() if name not in GONE_FIELDS} | dict(own)


def are_in_force(wanted: Mapping[str, Any], answered: Mapping[str, Any]) -> bool:
    """True when the agent's answer to /configz has all these fields: then a restart would only disturb the spec."""
    left_out = GONE_FIELDS | {"kind", "apiVersion"}
    return all(answered.get(name) == value for name, value in wanted.items() if name not in left_out)
