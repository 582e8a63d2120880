"""The value of each flag in force as text, in pflag's forms, for /flagz."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.config.flags.table import Flag, flags

_SIGNS = {"langleMap": "<", "colonSeparatedMultimapStringString": ":"}


def shown(configuration: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    """By the flag's name. `configuration`: each field in force, by path; `values`: of the command line, by name."""
    return {flag.name: _text(flag, _value(flag, configuration, values)) for flag in flags().values()}


def _value(flag: Flag, configuration: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    if not flag.field:
        return values.get(flag.name, flag.default_value())
    found = configuration.get(flag.field)
    return flag.default_value() if found is None else found


def _text(flag: Flag, value: Any) -> str:
    kind = flag.kind.name
    if value is None:
        return "[]" if kind == "stringSlice" else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        sign = _SIGNS.get(kind, "=")
        return ",".join(f"{key}{sign}{_item(one)}" for key, one in sorted(value.items()))
    if isinstance(value, list | tuple):
        items = ",".join(map(_item, value))
        return f"[{items}]" if kind == "stringSlice" else items
    return str(value)


def _item(value: Any) -> str:
    """One value of a map or a list: a text, a truth, several headers, or an object such as a taint."""
    match value:
        case bool():
            return str(value).lower()
        case list() | tuple():
            return " ".join(map(str, value))
        case {"key": key, "effect": effect}:
            return f"{key}={value.get('value') or ''}:{effect}"
        case {"filePattern": pattern, "verbosity": level}:
            return f"{pattern}={level}"
        case {"numaNode": node, "limits": limits}:
            return f"{node}:{';'.join(f'{name}={amount}' for name, amount in sorted(limits.items()))}"
    return str(value)
