"""Encodes KubeletConfiguration to plain values with the published names, for `config show` and configz.

Durations are in Go's format. Secret values are masked.
"""

from __future__ import annotations

from typing import Any

from supervisor.config.kubeletconfig.typed import schema
from supervisor.config.kubeletconfig.typed.base import ConfigStruct
from supervisor.config.kubeletconfig.typed.schema import Kind
from supervisor.config.kubeletconfig.typed.types import API_VERSION, KIND, KubeletConfiguration

MASKED = "<masked>"
"""Replacement of header values, which can be credentials. The kubelet's log has the same text."""


def plain(config: KubeletConfiguration, *, mask: bool = True) -> dict[str, Any]:
    """The configuration as dicts, lists and scalars, with apiVersion and kind and without absent fields.

    `mask` hides the values of staticPodURLHeader, and the user and password in staticPodURL.
    """
    fields = {"apiVersion": API_VERSION, "kind": KIND, **_struct(config)}
    if mask and config.static_pod_url_header:
        fields["staticPodURLHeader"] = {
            name: [MASKED] * len(values) for name, values in config.static_pod_url_header.items()
        }
    if mask and "@" in config.static_pod_url:
        scheme, _, rest = config.static_pod_url.partition("://")
        authority, slash, path = rest.partition("/")
        host = authority.rpartition("@")[2]
        fields["staticPodURL"] = f"{scheme}://{f'{MASKED}@' if '@' in authority else ''}{host}{slash}{path}"
    return fields


def secrets(config: KubeletConfiguration) -> dict[str, Any]:
    """The fields that `plain` masks, as they are. The kubelet shows them in /configz on its authenticated port."""
    masked, real = plain(config), plain(config, mask=False)
    return {name: value for name, value in real.items() if masked[name] != value}


def leaves(config: KubeletConfiguration) -> dict[str, Any]:
    """Each field as a plain value, by its path, with secrets masked; None: absent."""
    masked = {name: value for name, value in plain(config).items() if name.startswith("staticPodURL")}
    return {path: leaf(config, path) for path in schema.leaves()} | masked


def leaf(config: KubeletConfiguration, path: str) -> Any:
    """A field as a plain value, by its path (`logging.verbosity`); None: absent."""
    value = schema.get(config, path)
    return None if value is None else _value(schema.leaves()[path].field.kind, value)


def _struct(config: ConfigStruct, *, sparse: bool = True) -> dict[str, Any]:
    found = {}
    for name, field in schema.fields(type(config)).items():
        value = getattr(config, field.attribute)
        if value is None or (sparse and field.kind.struct is None and not field.nullable and value == field.default):
            continue
        inner = _value(field.kind, value)
        if inner != {} or field.nullable:  # an empty struct is left out, unless its presence has a meaning
            found[name] = inner
    return found


def _value(kind: Kind, value: Any) -> Any:
    if kind.struct is not None:
        return _struct(value)
    if kind.item is not None and kind.name == "list":
        if kind.item.struct is not None:
            return [_struct(item, sparse=False) for item in value]
        return [_value(kind.item, item) for item in value]
    if kind.item is not None:
        return {key: _value(kind.item, item) for key, item in value.items()}
    if kind.name in ("duration", "time-or-duration"):
        from proto.v1.scalars.duration import format_duration  # noqa: PLC0415 - see decode._duration

        return format_duration(value)
    return value
