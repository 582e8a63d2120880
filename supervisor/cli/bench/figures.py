"""Figures beside their floors: medians, percentiles, ratios, the table and the JSON. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

HEADERS = ("FIGURE", "THIS AGENT", "P99", "FLOOR", "RATIO")
RIGHT = frozenset(HEADERS[1:])


class Figure(NamedTuple):
    """One row. None: not measured."""

    name: str
    unit: str
    value: float | None
    """The median, unless the name says `mean`."""
    p99: float | None = None
    floor: float | None = None
    """The same work without the agent."""

    @property
    def ratio(self) -> float | None:
        """The value by the floor; None without a floor above 0."""
        return self.value / self.floor if self.value is not None and self.floor else None


def of_times(name: str, unit: str, seconds: Sequence[float], floor: Sequence[float], scale: float) -> Figure:
    """The figure of times in seconds, which `scale` converts to the unit."""
    return Figure(
        name, unit, _scaled(median(seconds), scale), _scaled(p99(seconds), scale), _scaled(median(floor), scale)
    )


def of_mean(name: str, count: float, sum_s: float, floor: Sequence[float]) -> Figure:
    """The figure of a mean that the agent has counted since its start, in milliseconds."""
    mean = 1000 * sum_s / count if count else None
    return Figure(f"{name}, mean of {count:.0f}", "ms", mean, floor=_scaled(median(floor), 1000))


def median(values: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    return statistics.median(values) if values else None


def p99(values: Sequence[float]) -> float | None:
    """The smallest value that 99 % of the values do not exceed (nearest rank); None of nothing."""
    return sorted(values)[(99 * len(values) + 99) // 100 - 1] if values else None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def cells(figure: Figure) -> tuple[str, ...]:
    """The row of the table."""
    measured = (text(value, figure.unit) for value in (figure.value, figure.p99, figure.floor))
    return (figure.name, *measured, "" if figure.ratio is None else f"{figure.ratio:.2f}")


def text(value: float | None, unit: str) -> str:
    """A value of three digits with its unit; empty for None."""
    if value is None:
        return ""
    digits = sum(abs(value) < bound for bound in (100, 10, 1))
    return f"{value:.{digits}f} {unit}".rstrip()


def as_json(figure: Figure) -> dict[str, Any]:
    """The figure for -o json, with null for what was not measured."""
    return {
        "figure": figure.name,
        "unit": figure.unit,
        "value": _rounded(figure.value),
        "p99": _rounded(figure.p99),
        "floor": _rounded(figure.floor),
        "ratio": _rounded(figure.ratio),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
