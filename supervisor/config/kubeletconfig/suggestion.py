"""Suggests a known name for a misspelt one, as in `did you mean ...?`."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """The suggestion for an error message; empty when no known name is close."""
    import difflib  # noqa: PLC0415 - only errors need it

    by_shape = {_shape(candidate): candidate for candidate in known}
    close = difflib.get_close_matches(_shape(name[:100]), by_shape, n=1, cutoff=0.65)
    return f", did you mean {by_shape[close[0]]}?" if close else ""


def _shape(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
