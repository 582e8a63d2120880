"""Merges a configuration file and its drop-ins, as the kubelet does (KEP-3983).

Plain values are merged by RFC 7396. Each value keeps its source, and relative paths become absolute.
`kubeletconfig.loading` reads the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from proto.schema.fieldpath import Path, field_text
from supervisor.config.kubeletconfig.loading import Loaded
from supervisor.config.kubeletconfig.problems import Origin

RELATIVE: tuple[Path, ...] = (
    ("staticPodPath",),
    ("authentication", "x509", "clientCAFile"),
    ("tlsCertFile",),
    ("tlsPrivateKeyFile",),
    ("resolvConf",),
    ("volumePluginDir",),
    ("podLogsDir",),
)
"""Fields with a path, which may be relative to the field's file."""


class Layer(NamedTuple):
    """Plain values, with their sources by field in Kubernetes' notation."""

    value: dict[str, Any]
    sources: dict[str, Origin]
    notes: tuple[str, ...] = ()
    """Warnings of replaced lists, whose authors may have expected a merge."""


EMPTY = Layer({}, {})


def of_file(loaded: Loaded) -> Layer:
    """The layer of a file that has no errors."""
    value = {key: inner for key, inner in loaded.value.items() if key not in ("apiVersion", "kind")}
    sources = {field: origin for field, origin in loaded.sources.items() if field not in ("apiVersion", "kind")}
    directory = os.path.dirname(os.path.abspath(loaded.file))
    for path in RELATIVE:
        around: Any = value
        for name in path[:-1]:
            around = (around or {}).get(name)
        if around and around.get(path[-1]) and not os.path.isabs(around[path[-1]]):
            around[path[-1]] = os.path.normpath(os.path.join(directory, around[path[-1]]))
    return Layer(value, sources)


def merge(base: Layer, patch: Layer) -> Layer:
    """`patch` over `base`: mappings merge, null removes, all else replaces (https://www.rfc-editor.org/rfc/rfc7396)."""
    sources = dict(base.sources)
    notes = [*base.notes, *_replaced_lists(base, patch)]
    return Layer(_merge(base.value, patch.value, (), sources, patch.sources), sources, tuple(notes))


def _replaced_lists(base: Layer, patch: Layer, path: Path = ()) -> Iterator[str]:
    before: Any = base.value
    after: Any = patch.value
    for name in path:
        before, after = before.get(name), after[name]
    if isinstance(after, dict) and isinstance(before, dict):
        for name in after:
            yield from _replaced_lists(base, patch, (*path, name))
    elif isinstance(after, list) and isinstance(before, list) and before != after:
        field = field_text(path)
        yield replaced(field, base.sources.get(field), patch.sources.get(field))


def replaced(field: str, before: Origin | None, after: Origin | None) -> str:
    """The warning of a replaced list or map."""
    return f"{after}: {field}: replaces the value of {before}"


def _merge(
    base: Any, patch: dict[str, Any], path: Path, sources: dict[str, Origin], patched: dict[str, Origin]
) -> dict[str, Any]:
    merged = dict(base) if isinstance(base, dict) else {}
    for key, inner in patch.items():
        here = (*path, key)
        field = field_text(here)
        if not (isinstance(inner, dict) and isinstance(merged.get(key), dict)):
            _forget(sources, field)
        if isinstance(inner, dict):
            merged[key] = _merge(merged.get(key), inner, here, sources, patched)
            if field in patched:
                sources[field] = patched[field]
        elif inner is None:
            merged.pop(key, None)
        else:
            merged[key] = inner
            sources.update({at: origin for at, origin in patched.items() if within(at, field)})
    return merged


def _forget(sources: dict[str, Origin], field: str) -> None:
    for at in [at for at in sources if within(at, field)]:
        del sources[at]


def within(at: str, field: str) -> bool:
    """True when a field is another one or inside it."""
    return at == field or (at.startswith(field) and at[len(field)] in ".[")
