"""One metric in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterable

from actors._metrics.text import header, number

Sample = tuple[str, float, float | None]
"""Label text, value, and the Unix time of the reading; None for values that do not change."""


def series(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> str:
    """The header and the samples of one metric; empty without samples."""
    lines = []
    for labels, value, at in samples:
        shown = f"{name}{{{labels}}}" if labels else name
        when = f" {int(at * 1000)}" if at is not None else ""
        lines.append(f"{shown} {number(value)}{when}\n")
    return "".join([header(name, kind, help_text), *lines]) if lines else ""
