"""Finds fields of a file that the API does not have. They are reported, never refused, as the kubelet ignores them.

A report may suggest a similar field. `typed.py` reports fields with a wrong type.
"""

from collections.abc import Iterator
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from proto.schema.fieldpath import Path
from proto.v1 import Record


def unknown_fields(record: type[Record], value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield (path, problem) of every field of a plain mapping that the record type lacks."""
    if not isinstance(value, dict):
        return
    known = _fields(record)
    for name, inner in value.items():
        here = (*path, name)
        if name not in known:
            yield here, "unknown field" + _suggestion(name, known)
            continue
        nested = known[name]
        if nested is None:
            continue
        for index, item in enumerate(inner) if isinstance(inner, list) else ((None, inner),):
            yield from unknown_fields(nested, item, here if index is None else (*here, index))


def _suggestion(name: str, known: dict[str, type[Record] | None]) -> str:
    import difflib  # noqa: PLC0415 - 0.2 MB in every actor, seldom needed

    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f", did you mean {by_lower[close[0]]}?" if close else ""


@lru_cache(maxsize=256)
def _fields(record: type[Record]) -> dict[str, type[Record] | None]:
    """The record type of each JSON name, directly or as a list's items; None for scalars and maps.

    A child process that reads one file needs it for a few types, so it looks at these only: `msgspec.inspect` follows
    each type to its leaves, for 30 ms.
    """
    return {field.encode_name: _record_in(field.type) for field in msgspec.structs.fields(record)}


def _record_in(annotation: Any) -> type[Record] | None:
    """The record type of a field's type, also inside an optional type or a list; None for others."""
    if get_origin(annotation) in (Union, UnionType, tuple, Annotated):
        return next((found for one in get_args(annotation) if (found := _record_in(one))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, Record) else None
